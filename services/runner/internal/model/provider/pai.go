package provider

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// paiFormat is the part of a pai configuration that is of use here; other keys
// are pai's own business. Its keys are values, not references.
type paiFormat struct {
	DefaultProvider string `json:"defaultProvider"`
	Providers       []struct {
		Name          string          `json:"name"`
		APIKey        string          `json:"apiKey"`
		API           string          `json:"api"`
		BaseURL       string          `json:"baseUrl"`
		DefaultModel  string          `json:"defaultModel"`
		Models        json.RawMessage `json:"models"`
		ContextWindow int             `json:"contextWindow"`
	} `json:"providers"`
}

// loadPai reads the configuration of pai. When it is not needed for a default,
// one that cannot be used is a note.
func loadPai(path string, getenv func(string) string, spare bool) (found, error) {
	f := found{source: FromPai}
	named := path != ""
	if path == "" {
		path = getenv("PAI_CONFIG")
		named = path != ""
	}
	if path == "" {
		home := getenv("HOME")
		if home == "" {
			return f, nil
		}
		path = filepath.Join(home, ".config", "pai", "default.json")
	}
	fail := func(problem string, err error) (found, error) {
		if spare {
			f.notes = append(f.notes, "the pai configuration "+problem)
			return f, nil
		}
		return f, &model.Error{Class: model.Config, Message: "the pai configuration " + problem, Err: err}
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return f, nil
	}
	if err != nil {
		return fail("cannot be read: "+why(err), err)
	}
	var file paiFormat
	if err := json.Unmarshal(data, &file); err != nil {
		// The error of the JSON package may quote a value.
		return fail("is not valid JSON of the expected shape", nil)
	}
	f.first = file.DefaultProvider
	for _, e := range file.Providers {
		if e.Name == "" {
			continue
		}
		p := Provider{Name: e.Name, API: paiAPI(e.API), BaseURL: e.BaseURL, ContextWindow: max(e.ContextWindow, 0)}
		if k, ok := findPreset(e.Name); ok {
			p.replayReasoning = k.ReplayReasoning
			if p.BaseURL == "" {
				p.BaseURL = k.BaseURL
			}
		}
		if e.DefaultModel != "" {
			p.Models = []string{e.DefaultModel}
		}
		var models []string
		if json.Unmarshal(e.Models, &models) == nil { // other shapes only name more models
			for _, m := range models {
				if m != "" && m != e.DefaultModel {
					p.Models = append(p.Models, m)
				}
			}
		}
		if key := strings.TrimSpace(e.APIKey); key != "" {
			p.KeyFrom = string(FromPai)
			p.key = func() (string, error) { return key, nil }
		}
		f.providers = append(f.providers, p)
		if p.Name == file.DefaultProvider || (file.DefaultProvider == "" && f.defaultName == "") {
			if drivers[p.API] != nil {
				f.defaultName, f.why = p.Name, "the pai configuration "+path+" names it"
			} else {
				f.notes = append(f.notes, "pai's provider "+p.Name+" speaks "+p.API+", which is not supported")
			}
		}
	}
	return f, nil
}

// paiAPI translates pai's word; others stay as they are and are refused when
// they are used.
func paiAPI(api string) string {
	switch api {
	case "", "openai-completions", "openai":
		return apiOpenAI
	case "anthropic-messages", "anthropic":
		return apiAnthropic
	}
	return api
}
