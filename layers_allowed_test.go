package agents_test

// An allowance permits one thing that the rules refuse, and gives the reason. An
// allowance that is no longer needed fails the test, so that the tables only shrink.
type allowance struct{ from, what, why string }

var (
	// imports between families of one layer
	sideways = []allowance{
		{"internal/sessionkey", "internal/agentdir/layout", "what the id of an agent is stands there"},
		{"internal/sessionkey", "internal/route", "the threads of a key are named by the segments of routes"},
		{"internal/binding", "internal/sessionkey", "a binding leads to a session key"},
		{"internal/binding", "internal/route", "a message of no account is resolved by its source address"},
		{"bench", "bench/load", "the program drives the load"},
		{"bench", "bench/limits", "the program measures against the limits"},
		{"bench", "bench/curve", "the program draws its curves"},
		{"bench", "bench/server", "the program runs what it measures"},
		{"bench", "bench/table", "the program prints a table"},
		{"bench/curve", "bench/plot", "curves are drawn"},
		{"cmd/agentctl", "cmd/internal/command", "programs for people share their flags, connections and errors"},
		{"cmd/agentctl", "cmd/internal/threadtool", "agentctl is the thread tool where it is called so"},
		{"cmd/thread", "cmd/internal/threadtool", "the same commands as a program of its own"},
		{"internal/lease", "internal/pause", "all that is tried again waits with the one jitter"},
		{"internal/agentdir", "internal/binding", "the settings of a home have the bindings"},
		{"internal/agentdir", "internal/sessionkey", "settings choose the scope of conversations"},
		{"internal/agentdir", "internal/hook", "settings name events and hooks by the rules that they have"},
		{"internal/hook", "internal/boundary", "answers of programs are made valid text"},
		{"internal/hook", "internal/toolpolicy", "names are matched by the globs of all settings"},
		{"internal/agentdir", "internal/chatcommand", "settings say who may use a command"},
		{"internal/agentdir", "internal/egress", "settings name hosts by the rules that they have"},
		{"internal/agentdir", "internal/argv", "settings have the templates of programs that are tools"},
		{"internal/channel/discord", "internal/boundary", "answers of the API are read up to a limit"},
		{"internal/channel/discord", "internal/pause", "a connection, and a message to a channel that is full, wait"},
		{"internal/channel/plugin", "internal/rpc", "a plugin is dialed as the services are, at a socket of our own user"},
		{"internal/channel/telegram", "internal/boundary", "answers of the Bot API are read up to a limit"},
		{"internal/channel/telegram", "internal/markup", "a text is sent with entities"},
		{"examples/botapi", "internal/channel/telegram/telegramtest", "the program serves the Bot API that tests use"},
		{"internal/channel/history", "internal/boundary", "a page whose answer is too long is asked for in smaller ones"},
		{"internal/channel/history", "internal/pause", "what cannot be fetched is tried again later"},
		{"internal/channel/slack", "internal/boundary", "answers of the API are read up to a limit"},
		{"internal/channel/slack", "internal/chunk", "a text is cut where its messages are"},
		{"internal/channel/slack", "internal/markup", "a text is sent in the form that the platform shows"},
		{"internal/egress", "internal/boundary", "hosts that programs ask for are written into answers"},
		{"internal/egress", "internal/netguard", "which addresses a program may reach is decided as for every request"},
		{"internal/agentdir", "internal/reference", "settings refer to secrets by the forms that it reads"},
		{"internal/agentdir", "internal/toolpolicy", "settings choose the tools of agents"},
		{"internal/agentdir", "internal/price", "settings have prices, and one function computes costs"},
		{"internal/agentdir", "internal/execpolicy", "settings choose which commands run without a person"},
		{"internal/agentdir", "internal/channel", "config.yaml names channels by the rules that they have"},
		{"internal/agentdir", "internal/channel/catalog", "the types of channels check the entries of config.yaml"},
		{"internal/channel", "internal/pause", "a message waits for the rate of its conversation"},
		{"internal/channel", "internal/source", "a reply_context names a source address"},
		{"internal/channel", "internal/netguard", "which addresses a webhook may reach is decided as for every request"},
		{"internal/workdir", "internal/boundary", "names of files that programs made are written into messages"},
		{"internal/workdir", "internal/filetree", "a working directory is read as every tree that other programs change"},
		{"internal/route", "internal/source", "a route is made of a source address"},
		{"internal/route", "internal/thread", "a reply_context is encoded as events are"},
	}
	// what a package below cmd uses although forbidden
	spoken = []allowance{
		{"internal/testing/need", "os.Getenv", "who runs tests says with the environment what may be missing"},
		{"internal/testing/need", "os.Stdout", "a proof that is skipped prints its line, as one that runs does"},
		{"internal/sandbox", "os.Args", "a sandboxed child is this program started again; its first words say so"},
	}
)

// badNames describe where code is, not what it does.
var badNames = []string{"pkg", "util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "base"}
