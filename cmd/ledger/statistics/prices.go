package statistics

import (
	"math/big"
	"os"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/events"
)

// Prices are the prices of models.
type Prices struct {
	Currency string
	models   map[string]price
}

// A price is the price of a million tokens of each kind.
type price struct{ input, output, cacheRead, cacheWrite *big.Rat }

// ReadPrices reads a table of prices, a TOML file: the text currency, and for each model a
// table models."NAME" with the prices input and output of a million tokens, and cache_read
// and cache_write, which are that of input if they are missing. A price is a decimal number,
// as a text or a number. A NAME that ends with * is for all models that begin so, and of
// several the longest applies.
func ReadPrices(path string) (*Prices, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Usage("--prices: %w", err)
	}
	p, err := parsePrices(string(data))
	if err != nil {
		return nil, fault.WithHint(fault.Usage("--prices: %s: %w", path, err), `a table is such as: currency = "USD", and [models."NAME"] with input = "3.00" and output = "15.00", for a million tokens`)
	}
	return p, nil
}

// parsePrices parses the text of a table of prices.
func parsePrices(text string) (*Prices, error) {
	var file struct {
		Currency string                    `toml:"currency"`
		Models   map[string]map[string]any `toml:"models"`
	}
	meta, err := toml.Decode(text, &file)
	if err != nil {
		return nil, err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fault.Usage("there is no key %s: the keys are currency and models", unknown[0])
	}
	p := &Prices{Currency: file.Currency, models: map[string]price{}}
	for name, values := range file.Models {
		var of price
		kinds := map[string]**big.Rat{"input": &of.input, "output": &of.output, "cache_read": &of.cacheRead, "cache_write": &of.cacheWrite}
		for key, v := range values {
			to := kinds[key]
			if to == nil {
				return nil, fault.Usage("model %q has no key %s: the keys are input, output, cache_read and cache_write", name, key)
			}
			if *to = decimal(v); *to == nil {
				return nil, fault.Usage("model %q: the price %s is %v, and not a decimal number from 0 on", name, key, v)
			}
		}
		if of.input == nil || of.output == nil {
			return nil, fault.Usage("model %q needs the prices input and output", name)
		}
		for _, to := range []**big.Rat{&of.cacheRead, &of.cacheWrite} {
			if *to == nil {
				*to = of.input
			}
		}
		p.models[name] = of
	}
	return p, nil
}

// maxPriceBytes bounds the digits of a price.
const maxPriceBytes = 32

// decimal returns a decimal number from 0 on, or nil for another value. A TOML number means
// the shortest decimal number of its value, which is the written one up to 15 digits.
func decimal(v any) *big.Rat {
	text := ""
	switch v := v.(type) {
	case string:
		text = v
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	}
	if text == "" || len(text) > maxPriceBytes || strings.Trim(text, "0123456789.") != "" {
		return nil
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return n
}

// of returns the price of a model, and whether the table has one.
func (p *Prices) of(model string) (price, bool) {
	if found, ok := p.models[model]; ok {
		return found, true
	}
	best, longest := price{}, -1
	for name, one := range p.models {
		if begin, ok := strings.CutSuffix(name, "*"); ok && strings.HasPrefix(model, begin) && len(begin) > longest {
			best, longest = one, len(begin)
		}
	}
	return best, longest >= 0
}

// million is the number of tokens of a price.
var million = big.NewRat(1_000_000, 1)

// cost returns the cost of tokens.
func (p price) cost(t events.Tokens) *big.Rat {
	sum := new(big.Rat)
	for _, part := range []struct {
		n  int64
		at *big.Rat
	}{{t.Input, p.input}, {t.Output, p.output}, {t.CacheRead, p.cacheRead}, {t.CacheWrite, p.cacheWrite}} {
		sum.Add(sum, new(big.Rat).Mul(big.NewRat(part.n, 1), part.at))
	}
	return sum.Quo(sum, million)
}

// exact returns a decimal number without rounding.
func exact(n *big.Rat) string {
	digits, _ := n.FloatPrec() // a sum of decimal prices, divided by a million, has finitely many
	return n.FloatString(digits)
}
