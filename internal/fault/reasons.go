package fault

// The reasons an [Error] can have. A reason is a promise to programs: it is never
// renamed, and each has its row in docs/errors.md.
const (
	// WrongUsage: the command line is wrong (exit code 2; every other failure is 1).
	WrongUsage = "USAGE"
	// InvalidArgument: a field of the request has a value that is not allowed.
	InvalidArgument = "INVALID_ARGUMENT"
	// AgentNotFound: no agent has this id.
	AgentNotFound = "AGENT_NOT_FOUND"
	// AgentExists: an agent has this id already.
	AgentExists = "AGENT_EXISTS"
	// AgentStopped: the agent does not take messages now.
	AgentStopped = "AGENT_STOPPED"
	// AgentFailed: the agent was set aside after repeated failures.
	AgentFailed = "AGENT_FAILED"
	// ConfigInvalid: a configuration file has an unknown key or a wrong value.
	ConfigInvalid = "CONFIG_INVALID"
	// ThreadNotFound: the path is not a thread.
	ThreadNotFound = "THREAD_NOT_FOUND"
	// ThreadExists: there is a thread at this path already.
	ThreadExists = "THREAD_EXISTS"
	// ConsumerNotFound: the thread has no subscription of this consumer.
	ConsumerNotFound = "CONSUMER_NOT_FOUND"
	// ConsumerExists: the consumer is subscribed already.
	ConsumerExists = "CONSUMER_EXISTS"
	// BindingInvalid: a binding states what cannot be.
	BindingInvalid = "BINDING_INVALID"
	// BindingsChanged: the bindings have another version than the caller knows.
	BindingsChanged = "BINDINGS_CHANGED"
	// RouteBroken: the agent of the binding that decides was deleted.
	RouteBroken = "ROUTE_BROKEN"
	// ChannelExists: the settings have an account of this name.
	ChannelExists = "CHANNEL_EXISTS"
	// ChannelAuth: the secret of an account is refused, or cannot be read.
	ChannelAuth = "CHANNEL_AUTH"
	// ChannelConflict: another program uses the bot of an account.
	ChannelConflict = "CHANNEL_CONFLICT"
	// ChannelSignature: what was posted to an account is not signed as its secret demands.
	ChannelSignature = "CHANNEL_SIGNATURE"
	// ChannelNotFound: the settings have no such account.
	ChannelNotFound = "CHANNEL_NOT_FOUND"
	// PeerRefused: this person, or this group, may not write to the account.
	PeerRefused = "PEER_REFUSED"
	// CommandForbidden: this person may not use the command.
	CommandForbidden = "COMMAND_FORBIDDEN"
	// QueueFull: as many messages of this person wait in the conversation as may.
	QueueFull = "QUEUE_FULL"
	// PairingNotFound: no person of this code or name waits, or was decided about.
	PairingNotFound = "PAIRING_NOT_FOUND"
	// PairingShared: the person would read and continue the conversation of others.
	PairingShared = "PAIRING_SHARED"
	// NotAddressed: the message of a group is not meant for the agent.
	NotAddressed = "NOT_ADDRESSED"
	// SessionNotFound: the agent has no such conversation.
	SessionNotFound = "SESSION_NOT_FOUND"
	// SessionKeyInvalid: a text is no session key, or several keys have its alias.
	SessionKeyInvalid = "SESSION_KEY_INVALID"
	// ToolNotFound: the runner has no such tool.
	ToolNotFound = "TOOL_NOT_FOUND"
	// ProcessNotFound: the conversation has no such process in the background.
	ProcessNotFound = "PROCESS_NOT_FOUND"
	// EventTooLarge: an event is over 1 MiB.
	EventTooLarge = "EVENT_TOO_LARGE"
	// FilterInvalid: a filter is outside the filter language.
	FilterInvalid = "FILTER_INVALID"
	// SourceForbidden: the caller may not state this source.
	SourceForbidden = "SOURCE_FORBIDDEN"
	// LeaseHeld: somebody else is working on this now.
	LeaseHeld = "LEASE_HELD"
	// LeaseLost: the lease ended or was taken over, so the write was refused.
	LeaseLost = "LEASE_LOST"
	// LeaseNotFound: there is no such lease.
	LeaseNotFound = "LEASE_NOT_FOUND"
	// TurnBegun: the turn of the message has begun, so it cannot be withdrawn.
	TurnBegun = "TURN_BEGUN"
	// TurnNotFound: there is no turn for this event.
	TurnNotFound = "TURN_NOT_FOUND"
	// RunNotFound: no run has this id, or it is too old.
	RunNotFound = "RUN_NOT_FOUND"
	// DeliveryNotFound: no delivery has this id.
	DeliveryNotFound = "DELIVERY_NOT_FOUND"
	// InboxFull: too many messages wait in the inbox, or this sender has used its quota.
	InboxFull = "INBOX_FULL"
	// DiskFull: there is no room to write.
	DiskFull = "DISK_FULL"
	// ReadOnly: the file or directory cannot be written.
	ReadOnly = "READ_ONLY"
	// DatabaseCorrupt: a database is damaged.
	DatabaseCorrupt = "DATABASE_CORRUPT"
	// FormatMismatch: the home directory was written by another version.
	FormatMismatch = "FORMAT_MISMATCH"
	// RegistryUnavailable: the registry does not answer.
	RegistryUnavailable = "REGISTRY_UNAVAILABLE"
	// ServiceUnavailable: a service does not answer.
	ServiceUnavailable = "SERVICE_UNAVAILABLE"
	// Unauthenticated: the caller could not be identified.
	Unauthenticated = "UNAUTHENTICATED"
	// CertificateInvalid: a certificate is missing, has ended, or is not trusted.
	CertificateInvalid = "CERTIFICATE_INVALID"
	// QuotaExceeded: a quota of the day, or a rate, is used up.
	QuotaExceeded = "QUOTA_EXCEEDED"
	// ApprovalClosed: the question was answered, used, or is too old.
	ApprovalClosed = "APPROVAL_CLOSED"
	// VersionConflict: the policy for commands was changed since it was read.
	VersionConflict = "VERSION_CONFLICT"
	// QuestionNotFound: there is no question with this id.
	QuestionNotFound = "QUESTION_NOT_FOUND"
	// HookInvalid: there is no such hook, or it is not called at the event.
	HookInvalid = "HOOK_INVALID"
	// HookFailed: a hook that must decide has failed.
	HookFailed = "HOOK_FAILED"
	// McpServerNotFound: the settings have no MCP server of this name.
	McpServerNotFound = "MCP_SERVER_NOT_FOUND"
	// McpUnavailable: the MCP server does not run.
	McpUnavailable = "MCP_UNAVAILABLE"
	// McpAuth: the MCP server refuses its credentials.
	McpAuth = "MCP_AUTH"
	// SecretMissing: there is no such secret, or its value cannot be read.
	SecretMissing = "SECRET_MISSING"
	// McpPinChanged: the MCP server has reported other tools than those that were shown.
	McpPinChanged = "MCP_PIN_CHANGED"
	// MediaNotFound: the agent has no media of this hash, or their data are damaged.
	MediaNotFound = "MEDIA_NOT_FOUND"
	// MediaTooLarge: media are larger than the limit.
	MediaTooLarge = "MEDIA_TOO_LARGE"
	// QuestionClosed: the question was answered or canceled, or has expired.
	QuestionClosed = "QUESTION_CLOSED"
	// AnswerInvalid: the answer is none of the options, where only those count.
	AnswerInvalid = "ANSWER_INVALID"
	// NotAsked: the answer is not of the peer that was asked, nor of the owner.
	NotAsked = "NOT_ASKED"
	// AuditBroken: the audit log is not what was written.
	AuditBroken = "AUDIT_BROKEN"
	// PermissionDenied: the caller may not do this.
	PermissionDenied = "PERMISSION_DENIED"
	// HomeLocked: another registry has this home directory.
	HomeLocked = "HOME_LOCKED"
	// SandboxUnavailable: programs cannot be sandboxed here, so none is run.
	SandboxUnavailable = "SANDBOX_UNAVAILABLE"
	// ModelConfig: the model or its provider is not set up, or not known.
	ModelConfig = "MODEL_CONFIG"
	// ModelAuth: the provider refused the key.
	ModelAuth = "MODEL_AUTH"
	// ModelRateLimit: the provider wants fewer requests.
	ModelRateLimit = "MODEL_RATE_LIMIT"
	// ModelUnavailable: the provider does not answer, or answers with a server error.
	ModelUnavailable = "MODEL_UNAVAILABLE"
	// ModelContextTooLong: the conversation does not fit into the model's context.
	ModelContextTooLong = "MODEL_CONTEXT_TOO_LONG"
	// ModelBadResponse: the provider's answer was truncated or cannot be understood.
	ModelBadResponse = "MODEL_BAD_RESPONSE"
	// ModelPolicy: the provider will not answer this content.
	ModelPolicy = "MODEL_POLICY"
	// ChannelUnavailable: the channel could not take the message now.
	ChannelUnavailable = "CHANNEL_UNAVAILABLE"
	// ChannelRejected: the channel refused the message permanently.
	ChannelRejected = "CHANNEL_REJECTED"
	// HopLimit: agents have passed a message on more than 8 times.
	HopLimit = "HOP_LIMIT"
	// Unimplemented: the service does not know this call.
	Unimplemented = "UNIMPLEMENTED"
	// Overloaded: a limit of the service was reached.
	Overloaded = "OVERLOADED"
	// Internal: something failed that nobody foresaw.
	Internal = "INTERNAL"
	// Canceled: the caller gave up.
	Canceled = "CANCELED"
	// Deadline: the call took longer than allowed.
	Deadline = "DEADLINE"
)
