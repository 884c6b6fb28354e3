package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
)

// Command answers the command top.
func Command(e *command.Env) *cobra.Command {
	once, every := false, 2*time.Second
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the activity of all agents, continuously",
		Long: `Show for each agent the waiting messages, the calls that wait for a person, the processes
in the background, the answers and tokens of the last minute, and the failures; and for each
account of a chat platform what it received and sent since the services started, and how long
its last message took from its sending. At a terminal the list is refreshed every 2 seconds
until q is pressed. With --once, with --json and without a terminal it is printed once.`,
		Example: `  agentctl top
  agentctl top --once --json | jq .total`,
		RunE: func(c *cobra.Command, _ []string) error {
			if every < time.Second {
				return command.Usage(c, "--every is at least 1s")
			}
			in, out := e.Terminal()
			if !once && !e.Data() && in != nil && e.Getenv("TERM") != "dumb" {
				return live(c.Context(), e, every, tea.WithInput(in), tea.WithOutput(out))
			}
			l, err := take(c.Context(), e, time.Now())
			if err != nil {
				return err
			}
			return screen.List(l.table(e).Data(l).Then(func() {
				if len(l.Accounts) > 0 {
					fmt.Fprintln(e.Out)
					l.accounts(e).Print()
					fmt.Fprintln(e.Out)
				}
				fmt.Fprintln(e.Out, l.summary())
			}), l.Agents, row.cells)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print once and exit")
	command.DurationFlag(c.Flags(), &every, "every", "refresh interval, at least 1s")
	return c
}

// cells are a row as it is shown.
func (r row) cells() []any {
	return []any{r.AgentID, r.State, r.Lag, r.Waits, r.Processes, r.Outbound, fmt.Sprintf("%.2f", r.TurnsPerS), r.InputTokens, r.OutputTokens, r.Errors, r.Dead, r.Problem}
}

func (l look) table(e *command.Env) *screen.Table {
	return screen.NewTable(e, "agent", "state", "lag", "waits", "procs", "out", "turns/s", "tok in", "tok out", "errors", "dead", "problem").
		Drop("tok in", "tok out", "turns/s", "out", "problem", "errors")
}

// accounts are a table of the accounts of chat platforms.
func (l look) accounts(e *command.Env) *screen.Table {
	t := screen.NewTable(e, "account", "state", "in", "out", "lag")
	for _, a := range l.Accounts {
		t.Row(a.Name, a.State, a.In, a.Sent(), a.Late())
	}
	return t
}

// summary is one line about all.
func (l look) summary() string {
	s := fmt.Sprintf("%s, %d waiting, %.2f turns/s, %d tokens in, %d out, %s in the last minute, %s",
		command.Count(len(l.Agents), "agent"), l.Total.Lag, l.Total.TurnsPerS, l.Total.InputTokens, l.Total.OutputTokens,
		command.Count(l.Total.Errors, "error"), command.Count(l.Total.Dead, "dead letter"))
	if l.NotAsked > 0 {
		s += fmt.Sprintf("; %s not asked", command.Count(l.NotAsked, "more agent was", "more agents were"))
	}
	return s
}

// model is the screen.
type model struct {
	ctx           context.Context // of the program
	env           *command.Env
	every         time.Duration
	width, height int
	look          look
	err           error
	seen          bool
}

type (
	looked struct {
		look look
		err  error
	}
	due struct{}
)

func live(ctx context.Context, e *command.Env, every time.Duration, opts ...tea.ProgramOption) error {
	env := []string{"TERM=" + e.Getenv("TERM"), "TMUX=" + e.Getenv("TMUX"), "LANG=" + e.Getenv("LANG")}
	if !e.Color() {
		env = append(env, "NO_COLOR=1")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &model{ctx: ctx, env: e, every: every, width: 80, height: 24}
	_, err := tea.NewProgram(m, append(opts, tea.WithContext(ctx), tea.WithoutSignalHandler(), tea.WithEnvironment(env))...).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Init looks at once.
func (m *model) Init() tea.Cmd { return m.next }

func (m *model) next() tea.Msg {
	ctx, cancel := context.WithTimeout(m.ctx, m.env.Flags.Timeout)
	defer cancel()
	l, err := take(ctx, m.env, time.Now())
	return looked{l, err}
}

// Update takes what happened. The next look is due after the last one's end.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m, tea.ClearScreen
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "ctrl+d", "esc":
			return m, tea.Quit
		}
	case looked:
		if m.err, m.seen = msg.err, true; msg.err == nil {
			m.look = msg.look
		}
		return m, tea.Tick(m.every, func(time.Time) tea.Msg { return due{} })
	case due:
		return m, m.next
	}
	return m, nil
}

// View draws as many agents as fit; the busiest are first.
func (m *model) View() tea.View {
	lines := []string{"asking ..."}
	if m.seen {
		lines = append(strings.Split(text.WrapSoft(m.look.summary(), m.width), "\n"), "")
		if len(m.look.Accounts) > 0 {
			list := m.look.accounts(m.env).Lines(m.width)
			lines = append(append(lines, list[:min(len(list), max(2, m.height/3))]...), "")
		}
		t := m.look.table(m.env)
		for _, r := range m.look.Agents[:min(len(m.look.Agents), max(0, m.height-3-len(lines)))] {
			t.Row(r.cells()...)
		}
		lines = append(lines, t.Lines(m.width)...)
	}
	if m.err != nil {
		lines = append([]string{"! " + screen.Line(fault.From(m.err).What) + "; asking again"}, lines...)
	}
	lines = lines[:min(len(lines), max(1, m.height-1))]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, lipgloss.NewStyle().Faint(true).Render("q leaves"))
	for i, l := range lines {
		lines[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(l)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen, v.WindowTitle = true, "agentctl top"
	return v
}
