package step

import (
	"encoding/json"
	"fmt"

	"github.com/theclaw/agents/internal/chunk"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/silence"
)

// Bounds of the blocks of one answer. What is behind them is sent at its end.
const (
	MaxBlocks     = 500
	MaxBlockBytes = 512 << 10
)

// BlockKey is the key of the nth block of a round's answer, both from 1.
func BlockKey(round, n int) string { return fmt.Sprintf("block:%d:%d", round, n) }

// written is the journaled result of a block.
type written struct {
	// Text is the part of the answer that the block holds; the message about it has the fences
	// that a cut through a block of code needs.
	Text string `json:"text"`
}

// Block is the journal row of a block of an answer, and what it says to the peer.
func Block(seq int32, round, n int, p chunk.Piece) (*registrypb.Step, *registrypb.Saying) {
	result, err := encode(written{p.Raw})
	if err != nil { // strings always encode
		result = []byte("{}")
	}
	key := BlockKey(round, n)
	return &registrypb.Step{
		Seq: seq, Kind: registrypb.StepKind_STEP_KIND_BLOCK, Key: key, State: registrypb.StepState_STEP_STATE_DONE, Result: result,
	}, &registrypb.Saying{StepKey: key, Text: p.Text}
}

// Blocks is the text of the blocks of a round's answer that are in the journal, and their number.
func (l *Log) Blocks(round int) (text string, n int) {
	for ; ; n++ {
		s := l.blocks[BlockKey(round, n+1)]
		if s == nil {
			return text, n
		}
		var w written
		if json.Unmarshal(s.GetResult(), &w) == nil {
			text += w.Text
		}
	}
}

// left is what is left to say of an answer behind its blocks. Where they end in a block of code, it
// begins with the same fence.
func (a Answer) left() string {
	at := min(a.InBlocks, len(a.Text))
	if at == 0 {
		return silence.Text(a.Text)
	}
	text := a.Text[:at] + silence.Behind(a.Text[:at], a.Text[at:])
	for _, p := range chunk.From(text, at, chunk.Bounds{}) {
		return p.Text // without a bound it is one
	}
	return ""
}
