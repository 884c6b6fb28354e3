// Package pages runs the command blocks of the documentation: README.md, the other pages
// in the root of the repository, and every page of docs.
//
// The info string of a fenced block says what happens with it; it is not shown on the web:
//
//	```sh run              every command of the block exits with 0
//	```sh fails            at least one command exits with another status
//	```sh heavy: REASON    as run, but only with HEAVY=1, because it takes long
//	```sh shown: REASON    never run
//
// The languages bash, shell and console are commands too; in a console block these are the
// lines after "$ ", and the lines between them are their output. A block of commands
// without a mark is an error. What a page needs and does not show stands in a comment,
// which is run in its place:
//
//	<!-- run
//	agentd all 2>/dev/null &
//	-->
//
// The blocks of a page run in their order in one bash, which starts in a copy of the tree
// with .bin first on its PATH, an empty home, an empty /tmp, its own processes and no
// network but loopback. Each block has a minute. Standard output and standard error of a
// block that ran are compared with a block of text that follows it, with nothing but blank
// lines in between. [Normalize] takes out what differs between two runs; a line "..."
// stands for any number of lines.
//
// The test reports how many blocks ran, failed as they say and were only shown, and lists
// the latter with their reasons. It does not check what a block of text claims that
// follows no block that ran.
package pages
