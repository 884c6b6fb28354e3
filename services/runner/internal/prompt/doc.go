// Package prompt builds the prompt of a model: a system text and messages that fit the
// model's window, from the claim of a turn. Their parts come from sources
// ([Source]), in one ordered list ([Standard]); those that stay the same from message to
// message come first.
//
//	IDENTITY.md, memory/agent.md, user-*, thread-*   --> system
//	tool hints, who speaks, owners, other agents     --> system
//	older messages of the thread (newest kept)       --> user, assistant
//	what others wrote since the last reply (quoted)  --> user
//	the inbound message (never dropped)              --> user
//	the steps of this turn                           --> assistant, tool
//
// It promises: the same [Scope] gives the same [Prompt] byte for byte; a file
// that is absent or blank leaves no heading (S0-107); nothing that is not in the
// Scope can get into the prompt, because it opens no file and makes no call.
//
// Of the older messages those in no digest are shown as they fit; those in a digest
// only as long as all of them together are not more than the newest Keep tokens.
//
// When the window is too small, parts are dropped in this order: the oldest messages,
// the results of the oldest tools of this turn, the end of what others wrote, the end of the inbound message; a part
// that is cut says so.
//
// It does not compact, does not choose the files (the registry does) and does
// not call the model. Sizes are tokens as [model.EstimateTokens] estimates them.
package prompt
