// Package tracetest reads the spans that the file exporter wrote, for tests.
//
// It promises to fail on a line that is no span. The test decides what a span must hold.
package tracetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Span is a span as a test sees it.
type Span struct {
	Name, Service           string
	TraceID, SpanID, Parent string // Parent is empty for the first span
	Links                   []string
	Attributes              map[string]any
	Status                  string
}

// Read returns the spans of a file, in the order in which they ended.
func Read(path string) ([]Span, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	type id struct{ TraceID, SpanID string }
	type attribute struct {
		Key   string
		Value struct{ Value any }
	}
	var out []Span
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var s struct {
			Name        string
			SpanContext id
			Parent      id
			Attributes  []attribute
			Links       []struct{ SpanContext id }
			Status      struct{ Code string }
			Resource    []attribute
		}
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, fmt.Errorf("read span %d: %w", len(out)+1, err)
		}
		span := Span{Name: s.Name, TraceID: s.SpanContext.TraceID, SpanID: s.SpanContext.SpanID, Attributes: map[string]any{}, Status: s.Status.Code}
		if s.Parent.SpanID != "0000000000000000" {
			span.Parent = s.Parent.SpanID
		}
		for _, a := range s.Attributes {
			span.Attributes[a.Key] = a.Value.Value
		}
		for _, l := range s.Links {
			span.Links = append(span.Links, l.SpanContext.TraceID)
		}
		for _, a := range s.Resource {
			if a.Key == "service.name" {
				span.Service, _ = a.Value.Value.(string)
			}
		}
		out = append(out, span)
	}
}

// In returns the spans of one trace.
func In(trace string, spans []Span) []Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.TraceID != trace })
}

// Named returns the spans of a name.
func Named(name string, spans []Span) []Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Name != name })
}
