package comparison

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// align returns the pairs of n and m things with the greatest sum of similarities, in the
// order of both. A similarity of 0 is no pair. The time and the memory are n times m.
func align(n, m int, similarity func(i, j int) int) [][2]int {
	best := make([]int32, (n+1)*(m+1))
	at := func(i, j int) *int32 { return &best[i*(m+1)+j] }
	alike := make([]int32, n*m)
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			most := max(*at(i+1, j), *at(i, j+1))
			s := int32(similarity(i, j))
			alike[i*m+j] = s
			if s > 0 {
				most = max(most, s+*at(i+1, j+1))
			}
			*at(i, j) = most
		}
	}
	var pairs [][2]int
	for i, j := 0, 0; i < n && j < m; {
		s := alike[i*m+j]
		switch {
		case s > 0 && *at(i, j) == s+*at(i+1, j+1):
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case *at(i, j) == *at(i+1, j):
			i++
		default:
			j++
		}
	}
	return pairs
}

// A place is a place in an input at which two inputs differ.
type place struct {
	path          string
	change        Change
	before, after string
}

// placesOf returns the places at which two inputs differ, by JSON pointers. Inputs that are
// no JSON differ as a whole.
func placesOf(a, b json.RawMessage) []place {
	x, okX := decoded(a)
	y, okY := decoded(b)
	if !okX || !okY {
		return []place{{"", Changed, string(a), string(b)}}
	}
	var found []place
	differing(&found, "", x, y)
	return found
}

// differing appends the places at which two JSON values differ. The last of MaxPlaces says
// that there are more.
func differing(found *[]place, path string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			names := maps.Clone(x)
			maps.Copy(names, y)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				before, inX := x[name]
				after, inY := y[name]
				member(found, path+"/"+pointer(name), before, after, inX, inY)
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			for i := range max(len(x), len(y)) {
				var before, after any
				if i < len(x) {
					before = x[i]
				}
				if i < len(y) {
					after = y[i]
				}
				member(found, fmt.Sprintf("%s/%d", path, i), before, after, i < len(x), i < len(y))
			}
			return
		}
	}
	if before, after := valueText(a), valueText(b); before != after || fmt.Sprintf("%T", a) != fmt.Sprintf("%T", b) {
		put(found, place{path, Changed, before, after})
	}
}

// member compares a member of two objects or lists, which one of them may not have.
func member(found *[]place, path string, before, after any, inA, inB bool) {
	switch {
	case !inB:
		put(found, place{path, Removed, valueText(before), ""})
	case !inA:
		put(found, place{path, Added, "", valueText(after)})
	default:
		differing(found, path, before, after)
	}
}

// put appends a place up to the limit.
func put(found *[]place, p place) {
	switch {
	case len(*found) < MaxPlaces-1:
		*found = append(*found, p)
	case len(*found) == MaxPlaces-1:
		*found = append(*found, place{path: p.path, change: Changed, before: "more places differ", after: "more places differ"})
	}
}

// pointer escapes a name for a JSON pointer.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// valueText returns a string as it is, and any other value as JSON.
func valueText(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
