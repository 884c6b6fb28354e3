package toolpolicy

// The defaults of the layer of the sandbox in the flavor openclaw: what a session in a sandbox may use,
// and what never. The names of channels deny tools of that name; message is in neither list.
var (
	SandboxAllow = []string{
		"exec", "process", "read", "write", "edit", "apply_patch", "image", "sessions_list", "sessions_history", "sessions_send",
		"sessions_spawn", "session_status",
	}
	SandboxDeny = []string{"browser", "canvas", "nodes", "cron", "gateway", "telegram", "whatsapp", "discord"}
)

// Writers are the tools that change files of the workspace.
var Writers = []string{"write", "edit", "apply_patch"}
