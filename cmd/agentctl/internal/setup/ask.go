package setup

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// askProvider lists the known providers and asks for one; empty means none.
func askProvider(ctx context.Context, e *command.Env, known []*runner.Provider) (string, error) {
	e.Note("Which model provider shall answer?")
	for i, p := range known {
		model := "-"
		if len(p.GetModels()) > 0 {
			model = p.GetModels()[0].GetName()
		}
		address, err := url.Parse(p.GetBaseUrl())
		if err != nil {
			address = &url.URL{}
		}
		e.Note("  %2d  %-18s  %-18s  %s", i+1, provider.NamesOf(known[i:i+1]), screen.Line(model), screen.Line(address.Host))
	}
	e.Note("Another name is a server of your own that speaks the API of OpenAI.")
	for {
		answer, err := screen.Ask(ctx, e, "Number or name, Enter for none: ")
		if err != nil || answer == "" {
			return "", err
		}
		for i, p := range known {
			if answer == fmt.Sprint(i+1) {
				answer = p.GetName()
			}
		}
		err = provider.CheckName(answer)
		if near := nearest(answer, known); err == nil && near != "" {
			if yes, err := screen.Confirm(ctx, e, "Is "+answer+" a server of your own, and not "+near+"?"); err != nil || yes {
				return answer, err
			}
			continue
		}
		if err == nil && (provider.Find(known, answer) != nil || strings.Trim(answer, "0123456789") != "") {
			return answer, nil
		}
		e.Note("%.80q is neither a number of the list nor a name", answer)
	}
}

// nearest is the known provider that a person may have meant who typed another name; empty: none.
func nearest(name string, known []*runner.Provider) string {
	if provider.Find(known, name) != nil {
		return ""
	}
	var names []string
	for _, p := range known {
		names = append(names, p.GetName())
	}
	return config.Nearest(name, names)
}
