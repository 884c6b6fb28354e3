package price_test

import (
	"math"
	"testing"

	"github.com/theclaw/agents/internal/price"
)

// Each kind of token has its own price; what has none is not guessed.
func TestCost(t *testing.T) {
	read, write := 0.3, 3.75
	whole := price.Price{Input: 3, Output: 15, CacheRead: &read, CacheWrite: &write}
	plain := price.Price{Input: 3, Output: 15}
	used := price.Tokens{Input: 1000, Output: 100, Cached: 600, CacheWrite: 200}
	for _, tt := range []struct {
		p     price.Price
		u     price.Tokens
		cost  float64
		known bool
	}{
		{whole, used, (200*3 + 600*0.3 + 200*3.75 + 100*15) / 1e6, true},
		{plain, price.Tokens{Input: 1000, Output: 100}, 0.0045, true},
		{plain, used, 0, false},
		{plain, price.Tokens{}, 0, true},
	} {
		if cost, known := tt.p.Cost(tt.u); known != tt.known || math.Abs(cost-tt.cost) > 1e-12 {
			t.Errorf("%+v: %v %v, want %v %v", tt.u, cost, known, tt.cost, tt.known)
		}
	}
}
