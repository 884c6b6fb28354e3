// Package execpolicy decides whether a command line may run on the host, or with the network
// open, without a person.
//
//	line --> Analyze --> simple commands with the path of each program
//	                       |                   Policy (settings and exec_policy, the stricter)
//	                       +---> Decide <------+
//	                               |
//	              run (the printed line) / refuse / ask, and what "always" would add
//
// A line is analyzable when it is simple commands joined by |, ||, && and ;, and each word is
// made of literals and quotes. Expansion, substitution, a glob, a tilde, an escape, a
// redirection, an assignment, a subshell, a line break and everything else that the shell
// gives a meaning make it not analyzable. Such a line matches no list.
//
// It promises that what was checked is what runs: [Line.String] prints the commands again with
// absolute paths and quoted words, so that neither PATH nor an alias, a function or a builtin of the
// shell can put another program there. It reads the file system to find programs and runs
// nothing.
package execpolicy
