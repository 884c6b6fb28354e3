package legacy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/inboxpath"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
)

// edit is one key of config.yaml that gets another value.
type edit struct {
	path       []string
	flow, what string
}

// settings finds what config.yaml says in another way. Comments and order stay.
func (s *scan) settings(ctx context.Context) error {
	data, err := os.ReadFile(filepath.Join(s.dir, "config.yaml"))
	if err != nil {
		s.cannot("settings", "make one with at least the line agent_id: "+s.id, "config.yaml cannot be read: %v", errors.Unwrap(err))
		s.last().Stops = true
		return nil
	}
	in := s.layers(data)
	set, before := layer.Load(in)
	var allowed []string
	if set != nil {
		allowed = set.InboxPaths
	}
	doc, err := yamldoc.Parse(data)
	if err != nil {
		s.refused(before)
		return nil
	}
	edits, err := s.edits(ctx, doc, allowed)
	if err != nil {
		return err
	}
	var told []string
	for _, e := range edits {
		out, err := doc.Set(e.path, e.flow)
		if err != nil {
			s.cannot("settings", "edit config.yaml by hand: "+strings.Join(e.path, ".")+": "+e.flow, "%s", e.what)
			continue
		}
		told = append(told, e.what)
		in.Agent.Data = out
		if doc, err = yamldoc.Parse(out); err != nil {
			return err
		}
	}
	_, after := layer.Load(in)
	if now := in.Agent.Data; !bytes.Equal(now, data) {
		s.will("settings", "writes config.yaml again; the old one is kept next to it", func(_ context.Context, stamp string) error {
			return s.replace("config.yaml", now, stamp)
		}, "%s", strings.Join(told, "; "))
		s.last().Stops = before != nil
	}
	s.refused(after)
	return nil
}

// layers are the settings with a text of config.yaml.
func (s *scan) layers(data []byte) layer.Layers {
	in := layer.Layers{AgentID: s.id, Agent: layer.File{Name: "config.yaml", Data: data}}
	if file, err := agentdir.ReadSettings(s.home); err == nil {
		in.Home = file
	}
	return in
}

// refused notes settings that stay wrong.
func (s *scan) refused(err error) {
	if err == nil {
		return
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	s.cannot("settings", "put it right in that line", "%s", what)
	s.last().Stops = true
}

func (s *scan) edits(ctx context.Context, doc *yamldoc.Doc, allowed []string) ([]edit, error) {
	var out []edit
	root := doc.Root()
	if id, ok := scalar(root, "agent_id"); !ok {
		out = append(out, edit{[]string{"agent_id"}, config.Quote(s.id), "agent_id is missing"})
	} else if id != s.id {
		out = append(out, edit{[]string{"agent_id"}, config.Quote(s.id), fmt.Sprintf("agent_id is %.80q, and the directory is %s", id, s.id)})
	}
	if kind, ok := scalar(root, "kind"); ok && kind != "user" && kind != "system" {
		out = append(out, edit{[]string{"kind"}, "user", fmt.Sprintf("kind is %.80q, which is none", kind)})
	}
	inbox, _ := scalar(root, "inbox", "path")
	old := false
	if filepath.IsAbs(inbox) {
		dir, problem, err := inboxpath.Resolve(inbox, inboxpath.Place{AgentID: s.id, Dir: s.dir, Home: s.home.Path(), Allowed: allowed})
		switch {
		case err != nil:
			return nil, err
		case problem != "":
			s.cannot("settings", "list its directory below inbox_paths in theclaw.yaml; or move it to "+filepath.Join(s.dir, "inbox")+" and write inbox.path: inbox", "inbox.path %s", problem)
			s.last().Stops = true
		case dir == "", dir == filepath.Join(s.dir, "inbox"):
			old = true
			out = append(out, edit{[]string{"inbox", "path"}, "inbox", "inbox.path is absolute, so that the directory could not be moved"})
		}
	}
	if !old {
		adopted, err := s.adopted(ctx)
		if err != nil {
			return nil, err
		}
		old = !adopted
	}
	if pairs, ok := yamldoc.Pairs(root); ok && old {
		for _, kv := range pairs {
			list, isList := yamldoc.Items(kv.Value)
			if name, ok := kv.Key.(*ast.StringNode); ok && name.Value == "outbound" && isList && len(list) == 0 {
				everything := config.FlowOutbound([]config.Outbound{{ThreadPattern: "**", Via: "xgw"}})
				out = append(out, edit{[]string{"outbound"}, everything, "outbound: [] meant everything through xgw to the earlier agent, and means nothing now"})
			}
		}
	}
	return out, nil
}

// scalar answers the text at a path.
func scalar(n ast.Node, path ...string) (string, bool) {
	pairs, ok := yamldoc.Pairs(n)
	if !ok {
		return "", false
	}
	for _, kv := range pairs {
		if name, ok := kv.Key.(*ast.StringNode); !ok || name.Value != path[0] {
			continue
		}
		if len(path) > 1 {
			return scalar(kv.Value, path[1:]...)
		}
		switch v := kv.Value.(type) {
		case *ast.StringNode:
			return v.Value, true
		case *ast.LiteralNode:
			return v.Value.Value, true
		case *ast.NullNode:
			return "", false
		default:
			return v.GetToken().Value, true
		}
	}
	return "", false
}
