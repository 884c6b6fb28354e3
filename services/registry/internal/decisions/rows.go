package decisions

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/store"
)

// The kinds of rows.
const (
	kindPerson = "pairing"
	kindPolicy = "exec_policy"
	kindTool   = "mcp_pin"
)

const (
	// maxName is the most bytes of the name of an account, a server, a tool or a person, maxPeer of an id.
	maxName = 1024
	maxPeer = 512
	// maxUnknown kinds are named in the log.
	maxUnknown = 10
)

// personRow is a decision about a person.
type personRow struct {
	Kind    string    `json:"kind"`
	Account string    `json:"account"`
	Peer    string    `json:"peer"`
	Type    string    `json:"type"`
	Name    string    `json:"name,omitempty"`
	State   string    `json:"state"`
	Owner   bool      `json:"owner,omitempty"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"`
}

// policyRow is the policy for commands, in the form of exec-approvals.json.
type policyRow struct {
	Kind     string              `json:"kind"`
	Policy   json.RawMessage     `json:"policy"`
	document execpolicy.Document // of Policy, after decode
}

// toolRow is a decision about a tool of an MCP server. The sums are those of its descriptions.
type toolRow struct {
	Kind     string    `json:"kind"`
	Server   string    `json:"server"`
	Tool     string    `json:"tool"`
	Approved string    `json:"approved_sha,omitempty"`
	Denied   string    `json:"denied_sha,omitempty"`
	Class    string    `json:"class"`
	By       string    `json:"by,omitempty"`
	At       time.Time `json:"at"`
}

// rows are the decisions of a home.
type rows struct {
	People  []personRow
	Policy  *policyRow // nil: there is none
	Tools   []toolRow
	Unknown []string // kinds that were skipped, the first few
}

func personOf(p store.Pairing) personRow {
	return personRow{kindPerson, p.Account, p.Peer, p.Type, p.Name, p.State, p.Owner, p.By, p.At.UTC()}
}

func (r personRow) pairing() store.Pairing {
	return store.Pairing{Account: r.Account, Peer: r.Peer, Type: r.Type, Name: r.Name, State: r.State, Owner: r.Owner, By: r.By, At: r.At}
}

func toolOf(p store.Pin) toolRow {
	return toolRow{kindTool, p.Server, p.Tool, p.ApprovedSHA, p.DeniedSHA, p.Class, p.By, p.At.UTC()}
}

// pin returns a pin with the decision. The description that was approved is known when it is reported.
func (r toolRow) pin(p store.Pin) store.Pin {
	p.ApprovedSHA, p.DeniedSHA, p.By, p.At = r.Approved, r.Denied, r.By, r.At
	if p.ApprovedSHA != "" && p.ApprovedSHA == p.ReportedSHA {
		p.Approved = p.Reported
	}
	return p
}

// String describes the rows in one line, for people.
func (r rows) String() string {
	owners := 0
	for _, p := range r.People {
		if p.Owner {
			owners++
		}
	}
	out := fmt.Sprintf("people: %d, owners among them: %d, tools: %d", len(r.People), owners, len(r.Tools))
	if r.Policy != nil {
		out += ", and the policy for commands"
	}
	return out
}

// encode returns the rows as JSON, one on each line.
func (r rows) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	var err error
	for _, p := range r.People {
		err = errors.Join(err, e.Encode(p))
	}
	if r.Policy != nil {
		err = errors.Join(err, e.Encode(r.Policy))
	}
	for _, t := range r.Tools {
		err = errors.Join(err, e.Encode(t))
	}
	return b.Bytes(), err
}

// decode reads rows; the size of the file bounds their number. Errors name the line.
func decode(data []byte) (r rows, err error) {
	for i, text := range strings.Split(string(data), "\n") {
		if text == "" {
			continue
		}
		if _, change := boundary.Text(text, 0); change.Replaced > 0 {
			return rows{}, damaged(i+1, "it is not UTF-8")
		}
		if err := r.decodeRow(text); err != nil {
			return rows{}, damaged(i+1, err.Error())
		}
	}
	return r, nil
}

func (r *rows) decodeRow(text string) error {
	var head struct{ Kind string }
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return err
	}
	switch head.Kind {
	case kindPerson:
		var p personRow
		if err := strict(text, &p); err != nil {
			return err
		}
		r.People = append(r.People, p)
		return p.check()
	case kindPolicy:
		var p policyRow
		err := strict(text, &p)
		if err == nil && r.Policy != nil {
			err = errors.New("it is a second policy")
		}
		if err == nil {
			p.document, err = execpolicy.Parse(p.Policy)
		}
		r.Policy = &p
		return err
	case kindTool:
		var t toolRow
		if err := strict(text, &t); err != nil {
			return err
		}
		r.Tools = append(r.Tools, t)
		return t.check()
	}
	if kind := boundary.Name(head.Kind); len(r.Unknown) < maxUnknown && !slices.Contains(r.Unknown, kind) {
		r.Unknown = append(r.Unknown, kind)
	}
	return nil
}

// strict decodes one JSON object without fields that v does not have.
func strict(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	return nil
}

func (r personRow) check() error {
	switch {
	case !between(r.Account, 1, maxName), !between(r.Peer, 1, maxPeer), !between(r.Type, 1, maxName), !between(r.Name, 0, maxName), !between(r.By, 0, maxName):
		return errors.New("a name is missing or too long")
	case r.State != store.PairingApproved && r.State != store.PairingBlocked:
		return errors.New("the state is neither approved nor blocked")
	case r.Owner && r.State != store.PairingApproved:
		return errors.New("an owner is not approved")
	}
	return nil
}

func (r toolRow) check() error {
	sums := []string{r.Approved, r.Denied}
	switch {
	case !between(r.Server, 1, maxName), !between(r.Tool, 1, maxName), !between(r.By, 0, maxName):
		return errors.New("a name is missing or too long")
	case !slices.Contains([]string{"read", "idempotent", "effect"}, r.Class):
		return errors.New("the class is none of read, idempotent and effect")
	case r.Approved == "" && r.Denied == "" || slices.ContainsFunc(sums, func(s string) bool { return s != "" && !isSum(s) }):
		return errors.New("a sum is missing or no SHA-256")
	}
	return nil
}

func between(s string, least, most int) bool { return len(s) >= least && len(s) <= most }

func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && strings.ToLower(s) == s
}
