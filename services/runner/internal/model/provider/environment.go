package provider

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

func isPreset(name string) bool { _, ok := findPreset(name); return ok }

func loadEnvironment(getenv func(string) string) found {
	f := found{source: FromEnvironment}
	for _, w := range Presets {
		p, why, note := fromEnvironment(w, getenv)
		if note != "" {
			f.notes = append(f.notes, note)
		}
		if why == "" {
			continue
		}
		f.providers = append(f.providers, p)
		if f.defaultName == "" && w.RegionOf == "" {
			f.defaultName, f.why = p.Name, why
		}
	}
	return f
}

// fromEnvironment reads the variables; why is empty when the provider is not there.
func fromEnvironment(w Preset, getenv func(string) string) (p Provider, why, note string) {
	get := func(name string) string {
		if name == "" {
			return ""
		}
		return strings.TrimSpace(getenv(name))
	}
	address, name := get(w.BaseVar), get(w.ModelVar)
	p = Provider{Name: w.Name, API: w.API, BaseURL: w.BaseURL, ContextWindow: w.Window, windows: w.Windows, replayReasoning: w.ReplayReasoning}
	if address != "" {
		p.BaseURL = address
	}
	switch {
	case w.Name == "ollama" && address == "":
		return p, "", ""
	case w.Name == "ollama" && name == "":
		return p, "", "OLLAMA_HOST is set, but OLLAMA_MODEL does not name a model"
	case w.Name == "ollama":
		p.BaseURL = ollamaURL(address)
		if n, err := strconv.Atoi(get("OLLAMA_CONTEXT_LENGTH")); err == nil && n > 0 {
			p.ContextWindow = n
		}
		why = "OLLAMA_HOST and OLLAMA_MODEL are set"
	case get(w.KeyVar) != "":
		p.KeyFrom = "env:" + w.KeyVar
		p.key, _ = reference(p.KeyFrom, "", getenv)
		why = w.KeyVar + " is set"
	case w.Name == "openai" && address != "": // a server of one's own without keys
		why = w.BaseVar + " is set"
	default:
		return p, "", ""
	}
	if name == "" {
		name = w.Model
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
