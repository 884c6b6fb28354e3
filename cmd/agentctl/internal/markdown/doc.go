// Package markdown owns how a text with the marks of Markdown looks on a
// terminal, while it is still being written.
//
//	Write(piece) --> whole lines ------> laid out once, kept
//	                 the line begun ---> laid out at each look, at most 4 KiB of it
//	                 a table begun ----> the same, at most 100 rows
//
// The unit is the line: a line break of the text is one on the screen. It knows
// headings, lists, quotes, rules, tables, fences of code, and within a line bold,
// emphasis, code, struck out text and links. What it does not know it shows as it
// is; nothing of the text is left out but the marks.
//
// It promises that a look costs the same however long the text is, that laying a
// text out in pieces and at once is the same, that no line is wider than asked
// for, and that the only escapes are those for looks: colours only when it may
// colour. The text itself has to be harmless already (package screen).
package markdown
