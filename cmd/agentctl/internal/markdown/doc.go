// Package markdown renders Markdown text for a terminal while the text is still being
// written.
//
//	Write(piece) --> complete lines ---> laid out once, kept
//	                 an open line -----> laid out at each rendering, at most 4 KiB of it
//	                 an open table ----> the same, at most 100 rows; with more of them its
//	                                     columns are fixed, and a row is laid out once
//
// The unit is the line: a line break of the text is one on the screen. It supports
// headings, lists, quotes, rules, tables, fenced code, and within a line bold,
// emphasis, code, strikethrough, links and entities. What it does not support it shows as
// it is; nothing of the text is left out except the marks. A star between two digits or
// Latin letters multiplies.
//
// It promises that a rendering costs the same however long the text is, that a text
// written in pieces looks the same as one written at once, that no line is wider than
// requested, also with Chinese, Japanese and joined emoji, and that the only escape
// sequences are those for style: colors only where they are allowed. The text itself must be safe already (package screen).
package markdown
