// Package pins implements PinService: it keeps which tools of MCP servers the owner has approved, each with the
// complete description that was approved. The states of a tool:
//
//	                 approve                 another description
//	reported --> NEW ---------> APPROVED <---------------------> CHANGED
//	              |  deny          |  not reported                  | deny
//	              `-----> DENIED   `------------> GONE              `----> DENIED
//
// A state is computed from what was reported and what was decided, so that a server which returns to an approved
// description has its tool approved again, and one that changes a denied description asks again. A tool that is
// gone without an approval is forgotten; so are the tools of a server that the settings no longer have ([Service.Prune]).
//
// It promises that only descriptions with the sum that the owner saw are in state approved, that a report which
// changes nothing writes nothing, and that a turn of an agent without servers costs no read. It contacts no server:
// the runner does, and reports.
package pins

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	// maxTools of a server are kept.
	maxTools = 512
	// maxText is how large the descriptions of a server may be together, in bytes, and the approved ones.
	maxText = 1 << 20
	// maxList is how large a list may be: it is one message.
	maxList = 3 << 20
)

// Home returns the settings of the home.
type Home interface {
	HomeSettings(ctx context.Context) (layer.HomeSettings, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Home Home
	Pins store.Pins
	// Meter is required.
	Meter Meter
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedPinServiceServer
	Deps
	settled settled
	counts  counts
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }

// ReportTools stores what a server offers.
func (s *Service) ReportTools(ctx context.Context, req *registryv1.ReportToolsRequest) (*registryv1.ReportToolsResponse, error) {
	if err := s.known(ctx, req.GetServer()); err != nil {
		return nil, err
	}
	reported, err := read(req)
	if err != nil {
		return nil, err
	}
	before, err := s.Pins.Pins(ctx, req.GetServer())
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	after := merge(before, reported)
	if put, gone := store.PinChanges(before, after); len(put)+len(gone) > 0 {
		err = s.Pins.ChangePins(ctx, req.GetServer(), func(before []store.Pin) ([]store.Pin, error) {
			after = merge(before, reported)
			return after, nil
		})
		if err != nil {
			return nil, s.Fault("", "", err)
		}
	}
	s.note(req.GetServer(), after)
	return &registryv1.ReportToolsResponse{Pins: messages(after)}, nil
}

// known refuses a server that the settings do not have.
func (s *Service) known(ctx context.Context, server string) error {
	names, err := s.servers(ctx)
	if err != nil {
		return err
	}
	return isServer(names, server)
}

func isServer(names []string, server string) error {
	if slices.Contains(names, server) {
		return nil
	}
	fix := "'agentctl mcp list' shows the servers"
	if near := config.Nearest(server, names); near != "" {
		fix = "did you mean " + near + "? " + fix
	}
	return fault.New(codes.NotFound, fault.McpServerNotFound, fmt.Sprintf("theclaw.yaml has no MCP server %s", boundary.Name(server)), fix)
}

func (s *Service) servers(ctx context.Context) (names []string, err error) {
	set, err := s.Home.HomeSettings(ctx)
	for _, one := range set.Servers {
		names = append(names, one.Name)
	}
	return names, err
}

// read checks a report and returns its tools with their sums.
func read(req *registryv1.ReportToolsRequest) ([]store.Pin, error) {
	var out []store.Pin
	size, seen := 0, map[string]bool{}
	for _, t := range req.GetTools() {
		name := t.GetName()
		var object map[string]json.RawMessage
		switch {
		case strings.ContainsFunc(name, unicode.IsControl):
			return nil, wire.Bad(fmt.Sprintf("the name %q of a tool has control characters", config.Clip(name)), "leave the tool out")
		case seen[name]:
			return nil, wire.Bad(fmt.Sprintf("there are two tools with the name %q", config.Clip(name)), "leave one of them out")
		case json.Unmarshal([]byte(t.GetDescription()), &object) != nil || object == nil:
			return nil, wire.Bad(fmt.Sprintf("the description of tool %q is no JSON object", config.Clip(name)), "leave the tool out")
		}
		if size += len(t.GetDescription()); size > maxText {
			return nil, wire.Bad(fmt.Sprintf("the descriptions of the tools have more than %d bytes together", maxText), "leave tools out")
		}
		seen[name] = true
		sum := sha256.Sum256([]byte(t.GetDescription()))
		out = append(out, store.Pin{Server: req.GetServer(), Tool: name, Reported: t.GetDescription(), ReportedSHA: hex.EncodeToString(sum[:]), Class: t.GetClass()})
	}
	return out, nil
}

// merge returns the pins of a server after a report. Of those that are gone some are forgotten where there are
// too many.
func merge(before, reported []store.Pin) []store.Pin {
	was := map[string]store.Pin{}
	for _, p := range before {
		was[p.Tool] = p
	}
	var out []store.Pin
	size := 0
	for _, r := range reported {
		p := was[r.Tool]
		delete(was, r.Tool)
		p.Server, p.Tool, p.Reported, p.ReportedSHA, p.Class = r.Server, r.Tool, r.Reported, r.ReportedSHA, r.Class
		if p.ApprovedSHA == p.ReportedSHA {
			p.Approved = p.Reported // the home was restored with the sum alone
		}
		out = append(out, p)
		size += len(p.Approved)
	}
	for _, tool := range slices.Sorted(maps.Keys(was)) {
		p := was[tool]
		if size += len(p.Approved); p.ApprovedSHA == "" || len(out) == maxTools || size > maxText {
			size -= len(p.Approved)
			continue
		}
		p.Reported, p.ReportedSHA = "", ""
		out = append(out, p)
	}
	slices.SortFunc(out, store.ComparePins)
	return out
}

// ListPins returns the tools of servers.
func (s *Service) ListPins(ctx context.Context, req *registryv1.ListPinsRequest) (*registryv1.ListPinsResponse, error) {
	names, err := s.servers(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetServer() != "" {
		if err := isServer(names, req.GetServer()); err != nil {
			return nil, err
		}
	}
	list, err := s.Pins.Pins(ctx, req.GetServer())
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	if req.GetServer() != "" { // another registry may have changed them
		s.note(req.GetServer(), list)
	}
	size := 0
	list = slices.DeleteFunc(list, func(p store.Pin) bool {
		listed := slices.Contains(names, p.Server)
		if listed {
			size += len(p.Reported) + len(p.Approved)
		}
		return !listed
	})
	if size > maxList {
		return nil, fault.New(codes.ResourceExhausted, fault.Overloaded, "the tools of all servers are too large for one list", "list those of one server")
	}
	out := &registryv1.ListPinsResponse{Pins: messages(list), Digest: digest(list)}
	if req.GetServer() != "" {
		out.Approved = named(slices.DeleteFunc(list, func(p store.Pin) bool { return p.State() != store.PinApproved }))
	}
	return out, nil
}

// named is a short name of the approved tools of a server, by tool; empty: there are none.
func named(approved []store.Pin) string {
	if len(approved) == 0 {
		return ""
	}
	h := sha256.New()
	for _, p := range approved {
		_, _ = fmt.Fprintf(h, "%q %s\n", p.Tool, p.ApprovedSHA) // of a hash: no error
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// digest is what was reported: names, descriptions and classes of the tools that are offered.
func digest(list []store.Pin) string {
	h := sha256.New()
	for _, p := range list {
		if p.ReportedSHA != "" {
			_, _ = fmt.Fprintf(h, "%q %q %s %s\n", p.Server, p.Tool, p.ReportedSHA, p.Class) // of a hash: no error
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ResolvePins approves or denies tools.
func (s *Service) ResolvePins(ctx context.Context, req *registryv1.ResolvePinsRequest) (*registryv1.ResolvePinsResponse, error) {
	if err := s.known(ctx, req.GetServer()); err != nil {
		return nil, err
	}
	id, _ := rpc.IdentityFrom(ctx)
	by, now := boundary.Name(cmp.Or(id.Role(), "owner")), time.Now()
	var after []store.Pin
	err := s.Pins.ChangePins(ctx, req.GetServer(), func(before []store.Pin) ([]store.Pin, error) {
		if digest(before) != req.GetDigest() {
			return nil, fault.New(codes.FailedPrecondition, fault.McpPinChanged, fmt.Sprintf("the MCP server %s has reported other tools since they were shown", req.GetServer()),
				fmt.Sprintf("nothing was changed; look at them again with 'agentctl mcp diff %s'", req.GetServer()))
		}
		chosen, err := choose(before, req)
		if err != nil {
			return nil, err
		}
		after = after[:0]
		for _, p := range before {
			if chosen[p.Tool] {
				p = decide(p, req.GetApprove(), by, now)
			}
			if p.ReportedSHA != "" || p.ApprovedSHA != "" || p.DeniedSHA != "" {
				after = append(after, p)
			}
		}
		return after, nil
	})
	if err != nil {
		return nil, s.Fault("", "", err)
	}
	s.note(req.GetServer(), after)
	return &registryv1.ResolvePinsResponse{Pins: messages(after)}, nil
}

// choose returns the tools that a request is about.
func choose(list []store.Pin, req *registryv1.ResolvePinsRequest) (map[string]bool, error) {
	out := map[string]bool{}
	if len(req.GetTools()) == 0 {
		for _, p := range list {
			if st := p.State(); st == store.PinNew || st == store.PinChanged {
				out[p.Tool] = true
			}
		}
		return out, nil
	}
	var names []string
	for _, p := range list {
		if p.ReportedSHA != "" || !req.GetApprove() {
			names = append(names, p.Tool)
		}
	}
	for _, name := range req.GetTools() {
		if !slices.Contains(names, name) {
			fix := fmt.Sprintf("'agentctl mcp diff %s' shows its tools", req.GetServer())
			if near := config.Nearest(name, names); near != "" {
				fix = "did you mean " + boundary.Name(near) + "? " + fix
			}
			return nil, fault.New(codes.NotFound, fault.ToolNotFound, fmt.Sprintf("the MCP server %s offers no tool %s", req.GetServer(), boundary.Name(name)), fix)
		}
		out[name] = true
	}
	return out, nil
}

// decide returns a pin after a decision; one that has it already stays as it is.
func decide(p store.Pin, approve bool, by string, now time.Time) store.Pin {
	switch st := p.State(); {
	case approve && st == store.PinApproved, !approve && st == store.PinDenied:
		return p
	case approve:
		p.Approved, p.ApprovedSHA, p.DeniedSHA = p.Reported, p.ReportedSHA, ""
	default:
		p.Approved, p.ApprovedSHA, p.DeniedSHA = "", "", p.ReportedSHA
	}
	p.By, p.At = by, now
	return p
}

var states = map[store.PinState]registryv1.PinState{
	store.PinNew: registryv1.PinState_PIN_STATE_NEW, store.PinApproved: registryv1.PinState_PIN_STATE_APPROVED, store.PinChanged: registryv1.PinState_PIN_STATE_CHANGED,
	store.PinDenied: registryv1.PinState_PIN_STATE_DENIED, store.PinGone: registryv1.PinState_PIN_STATE_GONE,
}

func messages(list []store.Pin) (out []*registryv1.Pin) {
	for _, p := range list {
		m := &registryv1.Pin{Server: p.Server, Tool: wire.Text(p.Tool), State: states[p.State()], Reported: p.Reported, Approved: p.Approved, Class: p.Class, By: p.By}
		if !p.At.IsZero() {
			m.At = timestamppb.New(p.At)
		}
		out = append(out, m)
	}
	return out
}

// Pinned adds to the MCP servers of a turn which of their tools are approved. Without servers nothing is read.
func (s *Service) Pinned(ctx context.Context, servers []*registryv1.McpServer) error {
	if len(servers) == 0 {
		return nil
	}
	list, err := s.Pins.ApprovedPins(ctx)
	if err != nil {
		return s.Fault("", "", err)
	}
	by := map[string][]store.Pin{}
	for _, p := range list {
		by[p.Server] = append(by[p.Server], p)
	}
	for _, m := range servers {
		m.Pins = named(by[m.GetName()])
	}
	return nil
}
