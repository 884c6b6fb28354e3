package identity

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Token answers the command token.
func Token(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:     "token",
		Short:   "Replace the token of callers on this machine",
		Example: `  agentctl token rotate`,
	}, &cobra.Command{
		Use:   "rotate",
		Short: "Revoke the token and create a new one",
		Long: `Revoke the token in run/token and create a new one. Services and clients that may read
the file use the new token at once; a caller with only the old one is refused.`,
		Example: `  agentctl token rotate`,
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := e.Home()
			if err != nil {
				return err
			}
			if _, err := os.Stat(home.RunDir()); err == nil {
				note(c.Context(), e, registry.IdentityChange_IDENTITY_CHANGE_TOKEN_ROTATED)
			}
			if _, err = rpc.NewToken(home.TokenFile()); errors.Is(err, fs.ErrNotExist) {
				return fault.Wrap(fault.New(codes.FailedPrecondition, fault.ServiceUnavailable,
					"there is no "+home.RunDir()+": no service was started here", "start one with 'agentd all'; each start makes a new token"), err)
			}
			if err != nil {
				return err
			}
			return e.Print(struct {
				File string `json:"file"`
			}{home.TokenFile()}, []string{home.TokenFile()}, func() error {
				e.Note("%s is new", home.TokenFile())
				return nil
			})
		},
	})
}
