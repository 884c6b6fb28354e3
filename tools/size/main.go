// Command size says what the bytes of our programs are, by module, and whether a program
// has grown.
//
//	go run ./size -stripped DIR -symbols DIR -out docs/size.md PROGRAM...   write the page
//	go run ./size -stripped DIR -check docs/size.md PROGRAM...              compare with it
//
// It reads programs for Linux: those in -symbols have their symbol table. Code and data of a
// symbol belong to the module of its package; the table of functions, which is as large
// as the code, is shared out by code. What no symbol names (descriptions of types, strings)
// is the rest of the file.
package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

const (
	largest = 20   // modules that are listed for each program
	growth  = 1.05 // times the size in the page that a program may have
)

func main() {
	stripped := flag.String("stripped", "", "directory of the programs as they are released")
	symbols := flag.String("symbols", "", "directory of the same programs with symbols")
	out := flag.String("out", "", "page to write")
	page := flag.String("check", "", "page to compare with")
	archive := flag.String("archive", "", "archive of a release whose size is written too")
	flag.Parse()
	var err error
	switch {
	case *page != "":
		err = check(*stripped, *page, flag.Args())
	case *out != "":
		err = write(*stripped, *symbols, *out, *archive, flag.Args())
	default:
		err = errors.New("give -out or -check")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func sizes(dir string, names []string) (of map[string]int64, sum int64, err error) {
	of = map[string]int64{}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, 0, err
		}
		of[name] = info.Size()
		sum += info.Size()
	}
	return of, sum, nil
}

var kept = regexp.MustCompile(`(?m)^\| ([a-z-]+) \| ([0-9]+) \|`)

func check(dir, page string, names []string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	now, _, err := sizes(dir, names)
	if err != nil {
		return err
	}
	before := map[string]int64{}
	for _, m := range kept.FindAllStringSubmatch(string(text), -1) {
		if before[m[1]], err = strconv.ParseInt(m[2], 10, 64); err != nil {
			return err
		}
	}
	for _, name := range names {
		if before[name] == 0 {
			err = errors.Join(err, fmt.Errorf("%s is not in %s: make size", name, page))
			continue
		}
		fmt.Printf("%s %s MB, %+.1f %%\n", name, mb(now[name]), 100*(float64(now[name])/float64(before[name])-1))
		if float64(now[name]) > growth*float64(before[name]) {
			err = errors.Join(err, fmt.Errorf("%s has %s MB, more than 5 %% over the %s in %s: `make size` and `git diff` show what was added; commit the page when it is worth it", name, mb(now[name]), mb(before[name]), page))
		}
	}
	return err
}

func write(stripped, symbols, out, archive string, names []string) error {
	of, sum, err := sizes(stripped, names)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# What the programs consist of\n\nWritten by `make size` (linux/amd64); the merge gate fails when a program is more than 5 % larger than here.\n\n## Sizes\n\n| program | bytes, stripped | goal |\n|---|---|---|\n")
	for _, name := range names {
		fmt.Fprintf(&b, "| %s | %d | |\n", name, of[name])
	}
	// 85 MB, and 9 MB for the libraries of the interfaces, of which the one for MCP is the first.
	fmt.Fprintf(&b, "| **sum** | %s MB | 94 MB |\n", mb(sum))
	if archive != "" {
		info, err := os.Stat(archive)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "| **archive of a release** (gzip) | %s MB | 35 MB |\n", mb(info.Size()))
	}
	b.WriteString("\n`thread` is a link to `agentctl`. Below are the 20 largest modules of each program, in KB: code,\ndata, and both with the share of the table of functions, which is shared out by code.\n")
	for _, name := range names {
		if err := program(&b, name, filepath.Join(symbols, name), of[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return os.WriteFile(out, []byte(b.String()), 0o644)
}

func mb(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }

type usage struct{ code, data uint64 }

func program(w io.Writer, name, file string, size int64) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	list, err := f.Symbols()
	if err != nil {
		return err
	}
	by := map[string]*usage{}
	var code uint64
	for _, s := range list {
		if int(s.Section) >= len(f.Sections) || s.Size == 0 {
			continue
		}
		section := f.Sections[s.Section]
		if section.Type == elf.SHT_NOBITS || s.Name == "go:func.*" || section.Name == ".gopclntab" {
			continue
		}
		m := module(info.Deps, info.Main.Path, s.Name)
		if by[m] == nil {
			by[m] = &usage{}
		}
		if section.Flags&elf.SHF_EXECINSTR != 0 {
			by[m].code += s.Size
			code += s.Size
		} else {
			by[m].data += s.Size
		}
	}
	var table uint64
	if s := f.Section(".gopclntab"); s != nil {
		table = s.Size
	}
	total := func(u *usage) uint64 { return u.code + u.data + uint64(float64(table)*float64(u.code)/float64(code)) }
	order := make([]string, 0, len(by))
	var named uint64
	for m, u := range by {
		order = append(order, m)
		named += total(u)
	}
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(total(by[b]), total(by[a])), cmp.Compare(a, b))
	})
	fmt.Fprintf(w, "\n## %s\n\n| module | code | data | with table |\n|---|---|---|---|\n", name)
	for _, m := range order[:min(largest, len(order))] {
		fmt.Fprintf(w, "| %s | %d | %d | %d |\n", m, by[m].code/1000, by[m].data/1000, total(by[m])/1000)
	}
	var others uint64
	for _, m := range order[min(largest, len(order)):] {
		others += total(by[m])
	}
	fmt.Fprintf(w, "| %d others | | | %d |\n", max(0, len(order)-largest), others/1000)
	fmt.Fprintf(w, "| descriptions of types, strings and the rest | | | %d |\n", (size-int64(named))/1000)
	return nil
}

var made = regexp.MustCompile(`^(go:itab\.|type:\.(eq|hash)\.|\.(eq|hash)\.|type:|go:|\*)+`)

// module is whose a symbol is.
func module(deps []*debug.Module, own, symbol string) string {
	symbol = made.ReplaceAllString(symbol, "")
	if i := strings.IndexAny(symbol, "([{ ,"); i >= 0 { // the receiver or the types of an instance
		symbol = symbol[:i]
	}
	path := strings.ReplaceAll(symbol, "%2e", ".")
	best := ""
	for _, d := range deps {
		if strings.HasPrefix(path, d.Path) && len(d.Path) > len(best) && len(path) > len(d.Path) && strings.ContainsRune("/.", rune(path[len(d.Path)])) {
			best = d.Path
		}
	}
	switch {
	case best != "":
		return best
	case strings.HasPrefix(path, own) || strings.HasPrefix(path, "main."):
		return own
	}
	return "the Go standard library and runtime"
}
