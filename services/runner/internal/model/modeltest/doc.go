// Package modeltest is the scripted model provider: a real HTTP server on
// loopback that does what a script says over server-sent events, in the wire
// format that is asked for: chat completions at /chat/completions, Anthropic's
// Messages API at /messages. The suite every network driver passes against it
// is package drivertest.
//
// What it promises: one script step per request, in the order of arrival (or
// by what the last user message holds, see [Step.Match]); each piece is
// flushed before the next one, so a test can hold a stream open with
// [Step.Gate]; every request is recorded.
//
// What it does not do: it imitates no model and implements no third API. Scripts
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
