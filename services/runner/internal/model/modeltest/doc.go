// Package modeltest is the scripted model provider: a real HTTP server on
// loopback that speaks chat completions over server-sent events and does what
// a script says, and the conformance suite every network driver passes.
//
// What it promises: one script step per request, in the order of arrival (or
// by what the last user message holds, see [Step.Match]); each piece is
// flushed before the next one, so a test can hold a stream open with
// [Step.Gate]; every request is recorded.
//
// What it does not do: it imitates no model and knows no other API. Scripts
// are Go values or JSON files ([LoadScript]), the same type:
//
//	{"steps": [
//	  {"status": 429, "retry_after": "2", "error": {"message": "slow down"}},
//	  {"match": "weather", "tool_calls": [{"id": "c1", "name": "bash_exec",
//	    "arguments": ["{\"comm", "and\":\"date\"}"]}]},
//	  {"text": ["It is ", "sunny."], "usage": {"input": 10, "output": 4}},
//	  {"text": ["never the e"], "cut": true}
//	]}
package modeltest
