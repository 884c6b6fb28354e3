package config

import (
	"slices"
	"strings"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// identityFile is the file of an agent that opens its prompt.
const identityFile = "IDENTITY.md"

// AddIdentity adds the identity that the settings give an agent to its IDENTITY.md among the
// files of a prompt, as a last line; where there is no such file it becomes the first one.
// Empty words are left out, and without any the files stay as they are.
func AddIdentity(files []*registryv1.ContextFile, name, theme, emoji string) []*registryv1.ContextFile {
	var parts []string
	for _, p := range []struct{ label, value string }{{"Name", name}, {"Theme", theme}, {"Emoji", emoji}} {
		if p.value != "" {
			parts = append(parts, p.label+": "+p.value)
		}
	}
	if len(parts) == 0 {
		return files
	}
	line := strings.Join(parts, ", ") + "\n"
	for i, f := range files {
		if f.GetName() == identityFile {
			files = slices.Clone(files)
			files[i] = &registryv1.ContextFile{Name: identityFile, Content: strings.TrimRight(f.GetContent(), "\n") + "\n\n" + line}
			return files
		}
	}
	return append([]*registryv1.ContextFile{{Name: identityFile, Content: line}}, files...)
}
