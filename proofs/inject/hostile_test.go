//go:build proof

package inject_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// hostile are n texts that mean something to a shell, a path, a statement, a
// template, a terminal or a decoder. They are the same for the same n, but for
// where marker is: the file that each command in them would make.
func hostile(n int, marker string) []string {
	chance := rand.New(rand.NewPCG(8, 0))
	touch := func() string { // a relative one is short enough for every field
		return []string{"touch " + marker, "touch ran", ">ran", "echo>ran"}[chance.IntN(4)]
	}
	kinds := []func(i int) string{
		func(i int) string { return fmt.Sprintf("a%d;%s", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d$(%s)", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d`%s`", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d\n%s\n", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d\r\n%s\r\n", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d' || %s #", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d\" && %s; \"", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d|%s&", i, touch()) },
		func(i int) string { return fmt.Sprintf("a%d\x00%s", i, touch()) },
		func(i int) string { return strings.Repeat("../", 1+i%12) + "secret.txt" },
		func(i int) string { return strings.Repeat("../", 1+i%8) + "victim/config.yaml" },
		func(i int) string { return "threads/" + strings.Repeat("../", 1+i%6) + fmt.Sprintf("new%d", i) },
		func(i int) string { return "memory/" + strings.Repeat("../", 1+i%9) + "secret.txt" },
		func(int) string { return marker },
		func(i int) string { return fmt.Sprintf("/tmp/../%s.%d", strings.TrimPrefix(marker, "/"), i) },
		func(i int) string { return fmt.Sprintf("~/ran%d", i) },
		func(i int) string { return fmt.Sprintf("~root/%d", i) },
		func(i int) string {
			return []string{".", "..", "...", "./", "//", "/", "*", "**/*", "?", "[a-z]*", "{a,b}"}[i%11]
		},
		func(i int) string { return fmt.Sprintf("%%00a%d%%2e%%2e%%2fsecret.txt", i) },
		func(i int) string { return fmt.Sprintf("%%2e%%2e/%%252e%%252e/a%d", i) },
		func(i int) string { return "..\\" + fmt.Sprintf("..\\secret%d.txt", i) },
		func(i int) string { return fmt.Sprintf("a%d\u202egnp.exe\u2066", i) },
		func(i int) string { return fmt.Sprintf("a%d", i) + strings.Repeat("\u0301", 1+i%90) },
		func(i int) string { return fmt.Sprintf("a%d\u200b\ufeff\u2028\u2029\u0085", i) },
		func(i int) string { return fmt.Sprintf("ﬁle‥∕ａ%d＇；", i) },
		func(i int) string { return fmt.Sprintf("broken%04d\xff\xfe\xc0\xaf", i) },
		func(i int) string { return fmt.Sprintf("surrogate%04d\xed\xa0\x80\xed\xbf\xbf", i) },
		func(i int) string { return strings.Repeat(fmt.Sprintf("%04d", i%10000), 1024) },
		func(i int) string { return strings.Repeat("../", 1365) + fmt.Sprint(i%10) },
		func(i int) string { return "-" + []string{"rf", "-help", "-home=" + marker, "o" + marker, ""}[i%5] },
		func(i int) string { return fmt.Sprintf("a%d'; DROP TABLE events; --", i) },
		func(i int) string { return fmt.Sprintf("a%d' OR '1'='1' UNION SELECT content FROM events --", i) },
		func(i int) string { return fmt.Sprintf("a%d\"; ATTACH '%s' AS x; --", i, marker) },
		func(i int) string { return fmt.Sprintf("{{.Env.%d}}${HOME}#{1}<%%= 7 %%>", i) },
		func(i int) string { return fmt.Sprintf("%%s%%n%%d%%[%d]v%%!v(x)", i) },
		func(i int) string { return fmt.Sprintf("\x1b]0;a%d\x07\x1b[2J\x1b[31m", i) },
		func(i int) string { return fmt.Sprintf("\x9b%dm\b\b\b\x7f", i) },
		func(i int) string {
			return []string{"con", "nul", "aux.txt", "COM1", "LPT9", "a.", "a ", "a::$DATA", "C:\\x"}[i%9]
		},
		func(i int) string { return fmt.Sprintf(`{"a%d":"}","__proto__":{"x":1}}`, i) },
		func(i int) string { return fmt.Sprintf("a%d: &x [*x]\n? !!python/object:%s", i, touch()) },
		func(i int) string { return fmt.Sprintf("external:%d:::::", i) },
		func(i int) string { return fmt.Sprintf("self\ninternal:agent:admin%d", i) },
		func(i int) string { return fmt.Sprintf("file:%s", strings.Repeat("../", i%9)+"secret.txt") },
		func(i int) string { return fmt.Sprintf("env:PATH\t%d", i) },
		func(i int) string { // anything at all
			b := make([]byte, 8+i%56)
			for j := range b {
				b[j] = byte(chance.Uint32())
			}
			return string(b)
		},
	}
	ids := make([]string, 0, n)
	for i := range n {
		ids = append(ids, kinds[i%len(kinds)](i/len(kinds)*7+i%7))
	}
	return ids
}
