package provider

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// wellKnown is a provider that a few environment variables are enough for.
type wellKnown struct {
	name, keyVar, baseVar, modelVar string
	baseURL, model                  string
	window                          int
	replayReasoning                 bool
}

var presets = []wellKnown{
	{
		name: "openai", keyVar: "OPENAI_API_KEY", baseVar: "OPENAI_BASE_URL", modelVar: "OPENAI_MODEL",
		baseURL: "https://api.openai.com/v1", model: "gpt-4o", window: 128_000,
	},
	{
		name: "deepseek", keyVar: "DEEPSEEK_API_KEY", baseVar: "DEEPSEEK_BASE_URL", modelVar: "DEEPSEEK_MODEL",
		baseURL: "https://api.deepseek.com/v1", model: "deepseek-chat", window: 128_000, replayReasoning: true,
	},
	{
		name: "moonshot", keyVar: "MOONSHOT_API_KEY", baseVar: "MOONSHOT_BASE_URL", modelVar: "MOONSHOT_MODEL",
		baseURL: "https://api.moonshot.ai/v1", model: "kimi-k2.6", window: 256_000, replayReasoning: true,
	},
	// Ollama has no key and no default model; its window is what the server
	// was started with, 4096 unless told otherwise, and it cuts longer prompts
	// without a word, so no more is assumed.
	{name: "ollama", baseVar: "OLLAMA_HOST", modelVar: "OLLAMA_MODEL", window: 4096},
}

func preset(name string) (wellKnown, bool) {
	i := slices.IndexFunc(presets, func(p wellKnown) bool { return p.name == name })
	if i < 0 {
		return wellKnown{}, false
	}
	return presets[i], true
}

func isPreset(name string) bool { _, ok := preset(name); return ok }

// needs are the variables without which the provider is not there.
func (w wellKnown) needs() []string {
	if w.keyVar == "" {
		return []string{w.baseVar, w.modelVar}
	}
	return []string{w.keyVar}
}

func loadEnvironment(getenv func(string) string) found {
	f := found{source: FromEnvironment}
	for _, w := range presets {
		p, why, note := w.provider(getenv)
		if note != "" {
			f.notes = append(f.notes, note)
		}
		if why == "" {
			continue
		}
		f.providers = append(f.providers, p)
		if f.defaultName == "" {
			f.defaultName, f.why = p.Name, why
		}
	}
	return f
}

// provider reads the variables; why is empty when the provider is not there.
func (w wellKnown) provider(getenv func(string) string) (p Provider, why, note string) {
	get := func(name string) string {
		if name == "" {
			return ""
		}
		return strings.TrimSpace(getenv(name))
	}
	address, name := get(w.baseVar), get(w.modelVar)
	p = Provider{Name: w.name, API: apiOpenAI, BaseURL: w.baseURL, ContextWindow: w.window, replayReasoning: w.replayReasoning}
	if address != "" {
		p.BaseURL = address
	}
	switch {
	case w.name == "ollama" && address == "":
		return p, "", ""
	case w.name == "ollama" && name == "":
		return p, "", "OLLAMA_HOST is set, but OLLAMA_MODEL does not name a model"
	case w.name == "ollama":
		p.BaseURL = ollamaURL(address)
		if n, err := strconv.Atoi(get("OLLAMA_CONTEXT_LENGTH")); err == nil && n > 0 {
			p.ContextWindow = n
		}
		why = "OLLAMA_HOST and OLLAMA_MODEL are set"
	case get(w.keyVar) != "":
		p.KeyFrom = "env:" + w.keyVar
		p.key, _ = reference(p.KeyFrom, "", getenv)
		why = w.keyVar + " is set"
	case w.name == "openai" && address != "": // a server of one's own without keys
		why = w.baseVar + " is set"
	default:
		return p, "", ""
	}
	if name == "" {
		name = w.model
	}
	p.Models = []string{name}
	return p, why, ""
}

// ollamaURL makes a base URL of what OLLAMA_HOST may be: a host, a host and
// port, or a URL; the address a server listens on everywhere means this
// machine.
func ollamaURL(host string) string {
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return host // refused, with a message, when it is used
	}
	name, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(name); name == "" || (ip != nil && ip.IsUnspecified()) {
		name = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"http": "11434", "https": "443"}[u.Scheme]
	}
	return fmt.Sprintf("%s://%s%s/v1", u.Scheme, net.JoinHostPort(name, port), strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1"))
}

// newClient is the HTTP client all drivers share. It has no total timeout (the
// drivers watch for silence instead) and takes the proxy from getenv, not from
// the process.
func newClient(getenv func(string) string) *http.Client {
	either := func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return getenv(strings.ToLower(name))
	}
	proxy := (&httpproxy.Config{HTTPProxy: either("HTTP_PROXY"), HTTPSProxy: either("HTTPS_PROXY"), NoProxy: either("NO_PROXY")}).ProxyFunc()
	return &http.Client{Transport: &http.Transport{
		Proxy:                 func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          128,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}}
}
