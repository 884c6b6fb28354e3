package layer

import (
	"strings"
	"testing"
)

// gateway.http is an address of loopback, or off, and another only behind a proxy; the settings of an account say what its type may
// have.
func TestGateway(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"gateway: {}":                          "",
		"gateway: {http: \"off\"}":             HTTPOff,
		"gateway: {http: \"127.0.0.1:80\"}":    "127.0.0.1:80",
		"gateway: {http: \"[::1]:18789\"}":     "[::1]:18789",
		"gateway: {http: \"0.0.0.0:80\"}":      "not an address of loopback",
		"gateway: {http: \"localhost:80\"}":    "is not ADDRESS:PORT",
		"gateway: {http: \"127.0.0.1:99999\"}": "is not ADDRESS:PORT",
		"gateway: {http: \"0.0.0.0:80\", public_url: \"https://a.example\"}":                                               "not an address of loopback",
		"gateway: {http: \"0.0.0.0:80\", trusted_proxies: [10.0.0.0/8]}":                                                   "not an address of loopback",
		"gateway: {http: \"0.0.0.0:80\", public_url: \"https://a.example/\", trusted_proxies: [10.0.0.0/8, \"fd00::/8\"]}": "0.0.0.0:80",
		"gateway: {publicUrl: \"https://a.example:8443\"}":                                                                 "",
		"gateway: {public_url: \"http://a.example\"}":                                                                      "is not https://HOST",
		"gateway: {public_url: \"https://u@a.example\"}":                                                                   "is not https://HOST",
		"gateway: {public_url: \"https://a.example/x\"}":                                                                   "is not https://HOST",
		"gateway: {trusted_proxies: [10.0.0.7]}":                                                                           "write it as 10.0.0.7/32",
		"gateway: {trusted_proxies: [0.0.0.0/0]}":                                                                          "is every address",
		"gateway: {trusted_proxies: [\"::ffff:10.0.0.0/120\"]}":                                                            "in the form of IPv6",
		"gateway: {trusted_proxies: [proxy.example]}":                                                                      "is not a range of addresses",
		"gateway: {port: 1}": "unknown key",
		"channels: {a: {type: webhook, url: \"https://a.example\", secret: \"env:A\"}}":     "",
		"channels: {a: {type: webhook, url: \"http://a.example\"}}":                         "https",
		"channels: {a: {type: webhook, token: \"env:TOKEN\"}}":                              "an account of type webhook has no token",
		"channels: {a: {type: telegram}}":                                                   "", // of an earlier build: it does not start
		"channels: {a: {type: telegram, token: \"env:A\", api: \"http://127.0.0.1:8081\"}}": "",
		"channels: {a: {type: telegram, token: \"env:A\", api: \"http://a.example\"}}":      "api must use https",
		"channels: {a: {type: telegram, token: \"1:hunter2\"}}":                             "reference",
		"channels: {a: {type: webhook, secret: hunter2}}":                                   "reference",
	} {
		s, err := ReadHome(File{Name: "theclaw.yaml", Data: []byte(text)})
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && s.Gateway.HTTP != want {
			t.Errorf("%s: %q %v, want %q", text, s.Gateway.HTTP, err, want)
		}
		if err != nil && strings.Contains(strings.SplitN(err.Error(), "\n", 2)[0], "hunter2") {
			t.Errorf("the error repeats what may be a secret: %v", err)
		}
	}
}
