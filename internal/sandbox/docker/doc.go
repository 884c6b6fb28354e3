// Package docker runs programs in containers, with the program docker and no library of it.
//
//	Run --> find the container of a scope by its labels --> docker exec --> result
//	          none: create, start
//	          other settings, or an older lease: remove, create, start
//
// There is one container for each scope (a conversation, an agent, all agents), with the directory of the turn at
// /workspace. A command is started in it by a shell script, which starts the program in a process group of its own
// and kills that group when its standard input closes: the end of `docker exec` alone does not end what it started.
// The script reports on stderr that the program may run from now on, and how it has ended.
//
// It promises: a program runs in the container or not at all, never on the host; a timeout, a canceled context and
// the death of this process end the process group of the program; where docker does not confirm that end, the
// container is removed; a result is bounded as that of package sandbox.
//
// It does not pull or build images, does not limit the network to some hosts, and gives programs no input. A process
// that leaves its process group lives until its container is removed. A user who may use docker is root on the host:
// containers separate programs from the host, not from this user.
package docker
