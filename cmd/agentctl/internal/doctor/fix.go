package doctor

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
)

// mend is what --fix does about a finding. It is safe: it takes nothing away that
// anybody refers to, decides nothing that is a person's to decide, and may be done
// again.
type mend struct {
	what string
	do   func(context.Context) error
}

// mended is what became of one, for programs.
type mended struct {
	Fix   string `json:"fix"`
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
}

// mend adds something to do about the newest finding.
func (x *examination) mend(what string, do func(context.Context) error) {
	x.mends = append(x.mends, mending{len(x.findings) - 1, mend{what, do}})
}

type mending struct {
	finding int
	mend
}

// fix does what is safe, or says what it would do. A finding of which everything was
// put right counts no more.
func (x *examination) fix(ctx context.Context, dry bool) {
	failed := map[int]bool{}
	for _, m := range x.mends {
		r := mended{Fix: m.what}
		if !dry {
			err := m.do(ctx)
			if r.Done = err == nil; err != nil {
				r.Error, failed[m.finding] = err.Error(), true
			}
		}
		x.fixes = append(x.fixes, r)
	}
	for _, m := range x.mends {
		if f := &x.findings[m.finding]; !dry && !failed[m.finding] {
			f.Fixed = true
		}
	}
}

// printFixes says what was done, would be done, or could be.
func (x *examination) printFixes(o options) {
	e := x.env
	for _, r := range x.fixes {
		switch {
		case o.dry:
			fmt.Fprintf(e.Out, "would     %s\n", screen.Line(r.Fix))
		case r.Done:
			fmt.Fprintf(e.Out, "%s     %s\n", screen.Paint(e, text.FgGreen, "fixed"), screen.Line(r.Fix))
		default:
			fmt.Fprintf(e.Out, "%s  %s: %s\n", screen.Paint(e, text.FgRed, "not done"), screen.Line(r.Fix), screen.Line(r.Error))
		}
	}
	switch n := len(x.mends); {
	case o.fix && n == 0:
		fmt.Fprintln(e.Out, "nothing can be repaired automatically")
	case !o.fix && n > 0:
		e.Note("%d can be put right by 'agentctl doctor --fix'; with --dry-run it only says how", n)
	}
}
