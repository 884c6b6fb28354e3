package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Entry is one thing that happened. Texts are capped, and redacted by the log.
type Entry struct {
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`          // owner, runner, deliverer-2, "" for nobody known
	From    string    `json:"from,omitempty"` // address, or uid and pid, of one that was refused
	Action  string    `json:"action"`         // StartAgent, tool, delivery, gap ...
	Agent   string    `json:"agent_id,omitempty"`
	Outcome string    `json:"outcome"` // allowed, refused, failed, or what became of it
	Detail  string    `json:"detail,omitempty"`
	Request string    `json:"request_id,omitempty"`
	Hash    string    `json:"-"`
}

// maxText is the longest text of an entry, in bytes.
const maxText = 500

// ActionGap is an entry of the log itself: entries that were on disk are gone.
const ActionGap = "gap"

// IdentityAction is the action of a change of tokens or certificates, from its name
// on the wire: CertificateIssued and the like.
func IdentityAction(change string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(change, "IDENTITY_CHANGE_"), "_") {
		b.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return b.String()
}

const hashKey = `,"hash":"`

// line encodes the entry and its hash.
func (e *Entry) line(prev string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encode audit entry: %w", err)
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	e.Hash = sum(prev, body)
	return fmt.Appendf(nil, "%s%s%s\"}\n", body, hashKey, e.Hash), nil
}

func sum(prev string, body []byte) string {
	h := sha256.New()
	_, _ = h.Write([]byte(prev)) // a hash never fails
	_, _ = h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

var (
	errForm = errors.New("it is not an entry")
	errHash = errors.New("it is not what was written")
)

// parse reads a line without its end and checks its hash.
func parse(line []byte, prev string) (Entry, error) {
	var e Entry
	i := bytes.LastIndex(line, []byte(hashKey))
	if i < 0 || len(line) != i+len(hashKey)+64+2 || !bytes.HasSuffix(line, []byte(`"}`)) {
		return e, errForm
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, errForm
	}
	e.Hash = string(line[i+len(hashKey) : len(line)-2])
	if e.Hash != sum(prev, line[:i]) {
		return e, errHash
	}
	return e, nil
}

// clip caps a text at a rune.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:maxText]), nil)) + "..."
}
