package model

// Token weights of the estimate in hundredths (S0-113).
const (
	asciiWeight = 25
	latinWeight = 70
	wideWeight  = 150
)

// wideFrom is where scripts begin whose characters are a token or more each:
// CJK radicals, kana, Han, Hangul, and everything outside the basic plane.
const wideFrom = 0x2E80

// imageTokens is what an image costs (S2-31).
const imageTokens = 2000

// EstimateTokens is the weighted guess of how many tokens a text costs: 0.25
// for an ASCII character, 1.5 for a CJK character (and emoji), 0.7 for any
// other letter, rounded up. It is for budgets; the provider's own usage is
// what was paid.
func EstimateTokens(text string) int64 {
	var hundredths int64
	for len(text) >= 8 && ascii(text) { // most of a prompt is
		hundredths += 8 * asciiWeight
		text = text[8:]
	}
	for _, r := range text {
		switch {
		case r < 0x80:
			hundredths += asciiWeight
		case r >= wideFrom, r >= 0x1100 && r <= 0x11FF: // Hangul Jamo live low
			hundredths += wideWeight
		default:
			hundredths += latinWeight
		}
	}
	return (hundredths + 99) / 100
}

// ascii reports whether the first eight bytes of a text are.
func ascii(s string) bool {
	const high = 0x8080808080808080
	return (uint64(s[0])|uint64(s[1])<<8|uint64(s[2])<<16|uint64(s[3])<<24|
		uint64(s[4])<<32|uint64(s[5])<<40|uint64(s[6])<<48|uint64(s[7])<<56)&high == 0
}

// EstimateRequest is the estimate for everything a request sends.
func EstimateRequest(req Request) int64 {
	total := EstimateTokens(req.System)
	for _, m := range req.Messages {
		total += EstimateTokens(m.Text) + EstimateTokens(m.Reasoning) + imageTokens*int64(len(m.Images))
		for _, c := range m.ToolCalls {
			total += EstimateTokens(c.Name) + EstimateTokens(string(c.Arguments))
		}
	}
	for _, t := range req.Tools {
		total += EstimateTokens(t.Name) + EstimateTokens(t.Description) + EstimateTokens(string(t.Schema))
	}
	return total
}
