// Package toolpolicy decides which tools an agent may use: names and groups of tools,
// profiles, and the layers of settings that allow and deny.
//
//	settings --> Layers: profile, home, agent --> Decide(tool): allowed, or the layer that denied it
//
// A tool is allowed when every layer allows it, so that a layer can only remove. In one
// layer a match of deny wins; without entries in allow everything else is allowed, with
// entries only what one of them matches. An entry is the name of a tool, a group such as
// group:fs, or a pattern in which * matches any characters.
//
// Names are compared in one form ([Canonical]): bash, shell and bash_exec are exec.
// It promises that a decision depends on its arguments alone and names the layer and the entry
// that made it. It does not list tools: package toolset of the runner does, and
// refuses the call of one that is not allowed.
package toolpolicy
