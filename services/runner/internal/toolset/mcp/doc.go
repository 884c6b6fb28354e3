// Package mcp offers the tools of MCP servers, which are programs of others (S3-59 to S3-61).
//
//	settings, approved tools --> [Servers.Tools]: the tools of a turn; no server is asked
//	call --> server starts, if it does not run --> its tools are read, and reported to the registry
//	     --> the tool is as it was approved --> tools/call --> result, marked as external content
//
// Each agent has its own process of a server, or its own session where the server is at a URL. It is started
// by the first call and stopped when it was not used for 10 minutes. A process runs in the sandbox, in a
// directory of its own, without the network, unless the settings say otherwise.
//
//	stopped --> starting --> up --> retrying --> starting ...     its process has ended
//	                         |        +--> down --> up            3 times in a minute: its tools are not offered
//	                         +--> auth                            it refuses its credentials
//
// It promises: a tool is offered and called only as the owner has approved it, by the hash of its name,
// description, schema and hints; one start serves all calls that wait for it; a call whose server ends fails at
// once, and is made again only where it reads or may be repeated, else it is in doubt; every message, list and
// result is bounded, and what servers write is data. It offers servers nothing: no sampling, no roots, no
// questions to the user. It does not decide which tools an agent has: toolset does, by the settings.
package mcp
