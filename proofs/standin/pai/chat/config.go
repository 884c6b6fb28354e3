package chat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type config struct {
	DefaultProvider string     `json:"defaultProvider"`
	Providers       []provider `json:"providers"`
}

type provider struct {
	Name          string   `json:"name"`
	APIKey        string   `json:"apiKey"`
	BaseURL       string   `json:"baseUrl"`
	DefaultModel  string   `json:"defaultModel"`
	Models        []string `json:"models"`
	ContextWindow int      `json:"contextWindow"`
	MaxTokens     int      `json:"maxTokens"`
}

func (p *program) configPath() string {
	switch {
	case p.o.config != "":
		return p.o.config
	case p.getenv("PAI_CONFIG") != "":
		return p.getenv("PAI_CONFIG")
	}
	return filepath.Join(p.getenv("HOME"), ".config", "pai", "default.json")
}

// choose reads the configuration and finds the provider.
func (p *program) choose() (provider, error) {
	path := p.configPath()
	var c config
	b, err := os.ReadFile(path)
	if err == nil {
		if err := json.Unmarshal(b, &c); err != nil {
			return provider{}, &failure{exitFile, "Config file is malformed", details{{"path", path}, {"error", err.Error()}}}
		}
	}
	name := p.o.provider
	if name == "" {
		name = c.DefaultProvider
	}
	if name == "" {
		return provider{}, &failure{exitLogic, "No provider specified and no default provider configured", details{{"configPath", path}}}
	}
	for _, v := range c.Providers {
		if v.Name == name {
			return v, nil
		}
	}
	return provider{}, &failure{exitLogic, "Provider not found: " + name, details{{"provider", name}, {"configPath", path}}}
}

// key finds the provider's key.
func (p *program) key(v provider) (string, error) {
	if v.APIKey != "" {
		return v.APIKey, nil
	}
	if k := p.getenv(strings.ToUpper(v.Name) + "_API_KEY"); k != "" {
		return k, nil
	}
	return "", &failure{exitLogic, "No credentials found for provider: " + v.Name, details{
		{"provider", v.Name}, {"checkedSources", []string{"CLI parameter", "environment variable", "config file"}},
	}}
}

// resolve is `pai model resolve`; the real one does not look at --provider either.
func (p *program) resolve() int {
	fmt.Fprintf(p.stderr, "Config: %s\n", p.configPath())
	v, err := p.choose()
	if err != nil {
		fmt.Fprintf(p.stderr, "Error: %v\n", err)
		return exitLogic
	}
	b, _ := json.MarshalIndent(struct {
		Provider      string `json:"provider"`
		Model         string `json:"model"`
		ModelSource   string `json:"modelSource"`
		ContextWindow int    `json:"contextWindow"`
		MaxTokens     int    `json:"maxTokens"`
	}{v.Name, v.DefaultModel, "providerDefault", v.ContextWindow, v.MaxTokens}, "", "  ")
	fmt.Fprintf(p.stdout, "%s\n", b)
	return 0
}

func readFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &failure{exitFile, "Failed to read file", details{{"path", path}, {"error", err.Error()}}}
	}
	return string(b), nil
}
