package conn

import "encoding/binary"

// words are short texts that were read before: a turn reads the newest messages of its
// thread again, and their sources, types and times with them. A text that is there is
// returned without being copied. Each place holds two texts, the newest first: with one,
// two texts of the same place that a thread repeats would be copied at each reading.
type words [64][2]string

// longest is the length of the longest text kept; with all places taken, a connection
// keeps 8 KB.
const longest = 48

func (w *words) get(b []byte) string {
	n := len(b)
	if n == 0 || n > longest {
		return string(b)
	}
	p := &w[place(b)%uint64(len(w))]
	if p[0] == string(b) {
		return p[0]
	}
	if p[1] == string(b) {
		return p[1]
	}
	p[0], p[1] = string(b), p[0]
	return p[0]
}

// place spreads texts that differ at either end, such as times.
func place(b []byte) uint64 {
	const odd = 0x9E3779B97F4A7C15
	var first, last uint64
	if len(b) >= 8 {
		first, last = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[len(b)-8:])
	} else {
		for _, c := range b {
			first = first<<8 | uint64(c)
		}
	}
	return ((first*odd ^ last + uint64(len(b))) * odd) >> 32
}
