// Package tool owns the tools a model may call and what one call answers.
//
// There is one tool, bash_exec (S0-103): a shell command in the sandbox, in the
// agent's working directory. Its class is effect: after a crash in the middle
// nobody knows what it did, so it is never run again by itself.
//
// It promises: a call that cannot be understood runs nothing and gets an answer
// that tells the model why; the environment of a command is the sandbox's, the
// four variables below and those of its place; an answer is JSON of at most [MaxResult] bytes.
//
//	TOOL_IDEMPOTENCY_KEY   key of the turn and of the call: the same after a crash
//	THECLAW_FENCE          resource=token of the lease the command runs under
//	XAR_AGENT_ID           the agent
//	XAR_CONV_ID            the conversation thread
//
// It does not journal, does not count, and does not decide whether a call may be
// repeated: the turn does.
package tool
