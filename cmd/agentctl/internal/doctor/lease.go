package doctor

import (
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// lease is a lease for programs.
type lease struct {
	Resource  string  `json:"resource"`
	Token     uint64  `json:"token"`
	Holder    string  `json:"holder"`
	Address   string  `json:"address"`
	TTLMS     int64   `json:"ttl_ms"`
	ExpiresAt *string `json:"expires_at"`
	Live      bool    `json:"live"`
}

func leaseCommand(e *command.Env) *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List which worker holds which lease",
		Long: `List the leases: which runner processes the messages of which agent (agent/ID), which
deliverer sends its replies (deliver/ID), and which gateway receives for which channel account
(channel/NAME). The token rises with every grant; a write with an older token is refused.`,
		Example: `  agentctl lease list
  agentctl lease list --json | jq '.[] | select(.live)'`,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := command.Pages(func(token string) ([]*registry.Lease, string, error) {
				r, err := e.Leases().ListLeases(c.Context(), &registry.ListLeasesRequest{PageToken: token})
				return r.GetLeases(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			all := []lease{}
			for _, l := range rows {
				all = append(all, lease{
					l.GetResource(), l.GetToken(), l.GetHolder(), l.GetAddress(), l.GetTtl().AsDuration().Milliseconds(), command.Stamp(l.GetExpiresAt()), l.GetLive(),
				})
			}
			t := screen.NewTable(e, "resource", "token", "live", "expires", "holder", "address").Wide("address").Cut("holder").Drop("token", "expires")
			return screen.List(t.None("no leases"), all, func(l lease) []any {
				expires := "-"
				if l.ExpiresAt != nil {
					expires = *l.ExpiresAt
				}
				return []any{l.Resource, l.Token, map[bool]string{true: "yes", false: "no"}[l.Live], expires, l.Holder, l.Address}
			})
		},
	}
	return command.Group(e, &cobra.Command{
		Use: "lease", Short: "Show which worker holds which agent", Example: `  agentctl lease list`,
	}, list)
}
