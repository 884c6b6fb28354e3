// Package price computes what tokens cost by the prices that a person wrote down.
//
// It never guesses: tokens of a kind without a price have no cost, and then the answer has
// none either. Prices are per million tokens, in the currency they were written down in.
package price

// Tokens of an answer, or of several of one model. Cached and CacheWrite are
// parts of Input: what was read from the provider's cache and put into it.
type Tokens struct{ Input, Output, Cached, CacheWrite int64 }

// Price of one model, per million tokens. CacheRead and CacheWrite may be nil
// for providers that have no such price; nothing is assumed for them.
type Price struct {
	Input, Output         float64
	CacheRead, CacheWrite *float64
}

const million = 1e6

// Cost of tokens; false when a part of them has no price. Reasoning is a part
// of the output and costs the same.
func (p Price) Cost(t Tokens) (float64, bool) {
	cost := p.Input*float64(t.Input-t.Cached-t.CacheWrite) + p.Output*float64(t.Output)
	for _, part := range []struct {
		tokens int64
		price  *float64
	}{{t.Cached, p.CacheRead}, {t.CacheWrite, p.CacheWrite}} {
		switch {
		case part.tokens == 0:
		case part.price == nil:
			return 0, false
		default:
			cost += *part.price * float64(part.tokens)
		}
	}
	return cost / million, true
}
