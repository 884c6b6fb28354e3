// Package agentdir owns the files below the home directory: agent ids, where
// everything lies, the making of an agent's directory, its text files and settings.
//
//	$THECLAW_HOME/                 0700
//	├── theclaw.yaml               home-wide defaults (optional)
//	├── registry.db                leases and desired states
//	├── run/                       <service>.sock, token, registry.lock, holders/
//	└── agents/<id>/
//	    ├── IDENTITY.md USAGE.md config.yaml
//	    ├── inbox/                 a thread
//	    ├── threads/{peers,channels,sessions}/<segment>/, threads/main/
//	    ├── memory/ sessions/ workdir/ logs/ run.lock
//
// It promises:
//   - an agent's directory appears whole or not at all, and of two that make the same
//     one exactly one succeeds;
//   - a file is replaced whole or not at all, after an fsync;
//   - directories are 0700 and files 0600, whatever the umask allows beyond;
//   - no id, file name or symbolic link leads outside the agent's directory ([os.Root]).
//
// It does not open databases, hold leases or run anything. Only the registry writes
// here (one per home); other programs use it for the paths.
package agentdir
