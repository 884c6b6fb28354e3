package chat

import (
	"strconv"
	"strings"
)

type options struct {
	config, session, system, systemFile, inputFile, provider, model, prompt string
	stream, json, noAppend, quiet, dryRun                                   bool
	maxTurns                                                                int
}

// names of the options with a file, as this version calls them.
func (p *program) named(option string) string {
	if _, ok := p.quirks["underscore"]; ok {
		switch option {
		case "--session", "--system-file", "--input-file":
			return strings.ReplaceAll(strings.TrimSuffix(option, "-file")+"-file", "-file", "_file")
		}
	}
	return option
}

func (p *program) parse(args []string) (problem string) {
	p.o.maxTurns = 100
	turns, ignored := "", ""
	values := map[string]*string{
		"--config": &p.o.config, p.named("--session"): &p.o.session, "--system": &p.o.system, p.named("--system-file"): &p.o.systemFile,
		p.named("--input-file"): &p.o.inputFile, "--provider": &p.o.provider, "--model": &p.o.model, "--max-turns": &turns,
		"--temperature": &ignored, "--max-tokens": &ignored, "--log": &ignored,
	}
	flags := map[string]*bool{
		"--stream": &p.o.stream, "--json": &p.o.json, "--no-append": &p.o.noAppend, "--quiet": &p.o.quiet, "--dry-run": &p.o.dryRun,
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case flags[a] != nil:
			*flags[a] = true
		case values[a] != nil && i+1 == len(args):
			return "option '" + a + " <value>' argument missing"
		case values[a] != nil:
			i++
			*values[a] = args[i]
		case strings.HasPrefix(a, "-") && len(a) > 1:
			return "unknown option '" + a + "'"
		default:
			p.o.prompt = a
		}
	}
	if n, err := strconv.Atoi(turns); err == nil && n > 0 {
		p.o.maxTurns = n
	}
	return ""
}

func (p *program) usage() string {
	return `Usage: pai chat [options] [prompt]

Options:
  --config <path>         configuration
  ` + p.named("--session") + ` <path>        session file
  --system <text>         system text
  ` + p.named("--system-file") + ` <path>    system text from a file
  ` + p.named("--input-file") + ` <path>     user message from a file
  --provider <name>       provider
  --model <name>          model
  --temperature <number>  temperature
  --max-tokens <number>   longest answer
  --stream                text as it comes
  --no-append             leave the session as it is
  --json                  events as JSON lines
  --quiet                 no progress
  --log <path>            log file
  --max-turns <number>    rounds of tools (default: 100)
  --dry-run               show what would be called
  -h, --help              this text
`
}
