// Package agentdir reads and writes the files below the home directory: it creates an
// agent's directory, with the texts a new agent starts with, and gives access to the
// agent's text files and settings.
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
//   - an agent's directory appears completely or not at all, and of two callers who create
//     the same one exactly one succeeds;
//   - a file is replaced completely or not at all, and is on disk when the call returns;
//   - directories are 0700 and files 0600, even where the umask would allow more;
//   - no id, file name or symbolic link leads outside the agent's directory ([os.Root]).
//
// It does not open databases, hold leases or run anything. Only the registry writes
// here (one per home); other programs use it for the paths.
package agentdir
