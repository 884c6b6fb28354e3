package world

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/theclaw/agents/internal/agentdir/layout"
)

// chooseOffline lets the built-in offline model answer everybody in a home that has no
// providers.yaml: without a choice it answers no peer. An environment in which a provider
// may be found is left as it is.
func chooseOffline(home string, env []string, user *syscall.Credential) error {
	if home == "" || slices.ContainsFunc(env, func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return value != "" && (strings.HasSuffix(name, "_KEY") || strings.HasSuffix(name, "_BASE_URL") || name == "PAI_CONFIG" || name == NoModel)
	}) {
		return nil
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	path := filepath.Join(home, "providers.yaml")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString("default: offline\n")
	if user != nil {
		err = errors.Join(err, f.Chown(int(user.Uid), int(user.Gid)))
	}
	return errors.Join(err, f.Close())
}

// NoModel in the environment, with any value, leaves a home without a choice of a model.
const NoModel = "THECLAW_TEST_NO_MODEL"

// homeOf is the home of an agentd that runs models, also of one that another program starts
// (ip netns exec SPACE agentd ...); "" of any other.
func homeOf(env, args []string) string {
	if i := slices.IndexFunc(args, func(a string) bool { return filepath.Base(a) == "agentd" }); i >= 0 {
		args = args[i+1:]
	}
	if len(args) == 0 || args[0] != "all" && !strings.HasPrefix(args[0], "runner") {
		return ""
	}
	if i := slices.Index(args, "--home"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	vars := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	home, err := layout.DefaultHome(func(name string) string { return vars[name] })
	if err != nil {
		return ""
	}
	return home
}
