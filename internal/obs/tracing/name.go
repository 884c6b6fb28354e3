package tracing

// Names of the GenAI semantic conventions, and ours under theclaw.
const (
	genSystem       = "gen_ai.system" // what provider.name was called before
	genProvider     = "gen_ai.provider.name"
	genOperation    = "gen_ai.operation.name"
	genModel        = "gen_ai.request.model"
	genInput        = "gen_ai.usage.input_tokens"
	genOutput       = "gen_ai.usage.output_tokens"
	genFinish       = "gen_ai.response.finish_reasons"
	genConversation = "gen_ai.conversation.id"
	genTool         = "gen_ai.tool.name"
	genToolCall     = "gen_ai.tool.call.id"
	errorType       = "error.type"

	keyRun      = "theclaw.run_id"
	keyAgent    = "theclaw.agent_id"
	keyThread   = "theclaw.thread_id"
	keyEvent    = "theclaw.event_id"
	keyOutcome  = "theclaw.outcome"
	keyChannel  = "theclaw.channel"
	keyAccount  = "theclaw.account"
	keyAttempt  = "theclaw.attempt"
	keyCached   = "theclaw.usage.cached_tokens"
	opChat      = "chat"
	opTool      = "execute_tool"
	spanReceive = "channel receive"
	spanPush    = "push"
	spanTurn    = "turn"
	spanDeliver = "deliver"
)

// Names of spans inside of a tool's; see [Child].
const (
	SpanSandbox = "sandbox run" // a program
	SpanMCP     = "mcp call"    // the call of a server
	SpanWait    = "wait"        // for a person
)
