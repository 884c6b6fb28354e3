package standalone

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/services/registry/internal/settings"
)

// HomeSettings returns the settings of the home that are in force.
func (f Files) HomeSettings(context.Context) (layer.HomeSettings, error) {
	st, err := f.home.HomeState() // an error only when there are no last good ones; a home without a file has some
	return st.Settings, err
}

// SetBindings replaces the bindings in the file of the home.
func (f Files) SetBindings(_ context.Context, list []binding.Binding, version string) (string, error) {
	return f.home.SetBindings(list, version)
}

// Written returns the file of the home.
func (f Files) Written(context.Context) (settings.Written, error) {
	st, err := f.home.HomeState()
	if err != nil {
		return settings.Written{}, err
	}
	w := settings.Written{Name: st.Name, Text: st.Text, Version: st.Settings.Version, LoadedAt: st.LoadedAt, Problem: st.Problem, Refused: st.Refused, Restart: st.Restart}
	return w, nil
}

// Replace refuses: the settings are a file.
func (f Files) Replace(context.Context, []byte, string) (string, error) {
	return "", fault.New(codes.FailedPrecondition, fault.InvalidArgument, "the settings of this home are a file", "edit theclaw.yaml in "+f.home.Path())
}

// SetValue sets or removes one key in the file of the home.
func (f Files) SetValue(_ context.Context, path []string, value string) (now layer.HomeSettings, existed bool, err error) {
	return f.home.SetValue(path, value)
}
