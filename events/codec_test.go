package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// zeroEvents returns the zero event of every kind in the table, in the order of
// the names.
func zeroEvents(t *testing.T) (all []Event) {
	t.Helper()
	for _, name := range Kinds() {
		zero, err := kinds[name].decode([]byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, zero)
	}
	return all
}

// codecSupports reports whether the codec encodes a struct. It does not if a
// required field, or one in a required struct, is a time, a pointer or a map.
func codecSupports(of reflect.Type) bool {
	for f := range of.Fields() {
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options != "" {
			continue
		}
		switch {
		case f.Type == reflect.TypeFor[time.Time](), f.Type.Kind() == reflect.Pointer, f.Type.Kind() == reflect.Map:
			return false
		case f.Type.Kind() == reflect.Struct && f.IsExported() && !codecSupports(f.Type):
			return false
		}
	}
	return true
}

// checkHandled reports a kind of which the codec handled too few events, or any
// event of a kind that it does not support.
func checkHandled(t *testing.T, e Event, handled int) {
	t.Helper()
	switch supported := codecSupports(reflect.TypeOf(e)); {
	case supported && handled < 20:
		t.Errorf("the codec handled only %d events of kind %s", handled, e.Kind())
	case !supported && handled > 0:
		t.Errorf("the codec handled %d events of kind %s, which has a required field of a type that it does not support", handled, e.Kind())
	}
}

// A randomFiller sets fields to random values, among them rare values and values
// that the encoder rejects.
type randomFiller struct{ *rand.Rand }

// fillerOf returns a filler for events of one kind. Its values do not depend on
// the other kinds of the table.
func fillerOf(e Event, seed uint64) randomFiller {
	return randomFiller{rand.New(rand.NewPCG(seed, uint64(crc32.ChecksumIEEE([]byte(e.Kind())))))}
}

var fillTexts = []string{
	"", "read", "a.go", "two\nlines\t\"quoted\" \\ \r\b\f", "\x00\x1f\x7f", "<a> & b", "wörd 日本 🙂", "bad \xff\xc3 utf8", "\u2028\u2029\ufffd",
	strings.Repeat("long and plain, ", 9), strings.Repeat("x", 7) + `"`, "null", "}", `{"tool":`, "?1",
}

var fillRaws = []string{
	``, `null`, `true`, `-0`, `1.5e+10`, `"x\u00e9\ud83d\ude42"`, `{}`, `[]`, `{"a":[1,{"b":null}],"c":"d\n"}`, `{ "a" : 1 }`, `"` + "\xff" + `"`,
	`[1,]`, `{"a"}`, `01`, `"\x"`, `nul`, strings.Repeat("[", 150) + strings.Repeat("]", 150),
}

func (r randomFiller) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(fillRaws[r.IntN(len(fillRaws))])))
		return
	case domain.Contents:
		all := []domain.Contents{
			nil, {}, {domain.Text("")}, {domain.Text(fillTexts[r.IntN(len(fillTexts))]), domain.Text("two")},
			{domain.Media{MIME: "image/png", Data: []byte("png")}}, {nil},
		}
		v.Set(reflect.ValueOf(all[r.IntN(len(all))]))
		return
	case time.Time:
		v.Set(reflect.ValueOf([]time.Time{{}, time.Date(2026, 3, 1, 12, 0, 0, r.IntN(1e9), time.UTC)}[r.IntN(2)]))
		return
	case domain.Ref:
		channels := []domain.Channel{domain.TextChannel, domain.StructuredChannel, 0}
		v.Set(reflect.ValueOf(domain.NewRef(eventID(r.bytes16()), channels[r.IntN(3)])))
		return
	}
	if v.Kind() == reflect.Struct && strings.HasPrefix(v.Type().Name(), "ID[") {
		if r.IntN(5) > 0 {
			id := r.bytes16()
			reflect.NewAt(reflect.TypeFor[[16]byte](), v.Addr().UnsafePointer()).Elem().Set(reflect.ValueOf(id))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fillTexts[r.IntN(len(fillTexts))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int64, reflect.Int:
		v.SetInt([]int64{0, 1, -1, 1 << 62, -1 << 63, 12345}[r.IntN(6)])
	case reflect.Uint8: // a constant of a closed set, and rarely a value outside of it
		v.SetUint(uint64(r.IntN(4)))
		if r.IntN(10) == 0 {
			v.SetUint(uint64(r.IntN(20)))
		}
	case reflect.Array:
		if r.IntN(3) > 0 {
			for i := range v.Len() {
				v.Index(i).SetUint(uint64(r.IntN(256)))
			}
		}
	case reflect.Slice:
		if n := r.IntN(4) - 1; n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			r.fill(v.Index(i))
		}
	case reflect.Pointer:
		if r.IntN(4) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			r.fill(v.Elem())
		}
	case reflect.Struct:
		for f, field := range v.Fields() {
			if !f.IsExported() {
				continue
			}
			if r.IntN(4) > 0 {
				r.fill(field)
			}
		}
	default:
		panic(fmt.Sprintf("fill %s", v.Type()))
	}
}

func (r randomFiller) bytes16() (b [16]byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// eventID returns the ID of an event with these bytes.
func eventID(b [16]byte) domain.EventID {
	return like(domain.EventID{}, b)
}

func like[K domain.IDKind](_ domain.ID[K], b [16]byte) domain.ID[K] { return domain.IDFromBytes[K](b) }

// randomEvent returns an event of the kind of another event, with random fields.
func (r randomFiller) randomEvent(kind Event) Event {
	v := reflect.New(reflect.TypeOf(kind)).Elem()
	r.fill(v)
	if same := v.FieldByName("Effective"); same.IsValid() && r.IntN(2) == 0 {
		same.Set(v.FieldByName("Offered"))
		if agrees := v.FieldByName("Agrees"); agrees.IsValid() && r.IntN(2) == 0 {
			agrees.SetBool(!v.FieldByName("Offered").FieldByName("Fingerprint").IsZero())
		}
	}
	return v.Interface().(Event)
}

// decodeWithStdlib decodes data of the latest version of a kind with
// encoding/json.
func decodeWithStdlib(kind string, data []byte) (Event, error) {
	return kinds[kind].decode(data)
}

// decodeWithCodec decodes data of the latest version of a kind with the codec. It
// returns nil if the codec does not support them.
func decodeWithCodec(kind string, data []byte, k *internTable) Event {
	c := jsonCodec{buf: data, reading: true, interned: k}
	return c.read(kind)
}

func TestCodecEncodesAsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, kind := range zeroEvents(t) {
		r, handled := fillerOf(kind, 1), 0
		for range Rounds(200, 1000) {
			e := r.randomEvent(kind)
			got, ok := encodeWithCodec(e)
			if !ok {
				continue
			}
			handled++
			if want, err := marshalJSON(packedForm(e)); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s is written\n%s\nand by encoding/json, %v,\n%s", e.Kind(), got, err, want)
			}
		}
		checkHandled(t, kind, handled)
	}
}

func TestCodecDecodesAsEncodingJSON(t *testing.T) {
	t.Parallel()
	table := &internTable{}
	for _, kind := range zeroEvents(t) {
		r, handled := fillerOf(kind, 2), 0
		for range Rounds(200, 1000) {
			e := r.randomEvent(kind)
			data, err := marshalJSON(packedForm(e))
			if err != nil {
				continue
			}
			want, failed := decodeWithStdlib(e.Kind(), data)
			for _, k := range []*internTable{nil, table, table} {
				got := decodeWithCodec(e.Kind(), data, k)
				if got == nil {
					continue
				}
				handled++
				if failed != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("%s reads as\n%+v\nand by encoding/json as\n%+v, %v", data, got, want, failed)
				}
			}
		}
		checkHandled(t, kind, handled)
	}
}

// An event in its encoded form reads back with every field that it leaves out, and the
// first version of the same event, with all fields, reads the same.
func TestPackedEventsReadBackWhole(t *testing.T) {
	t.Parallel()
	r, shorter := randomFiller{rand.New(rand.NewPCG(6, 6))}, 0
	for range Rounds(200, 2000) {
		for _, kind := range sameEvents() {
			e := r.randomEvent(kind)
			whole, err := marshalJSON(e)
			if err != nil {
				continue
			}
			first, err := decodeAlone(Record{Kind: e.Kind(), Version: 1, Data: whole})
			if err != nil {
				continue // a reference without a channel
			}
			packed, err := Encode(draftOf(first.Event))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeAlone(packed)
			if err != nil || !reflect.DeepEqual(got.Event, first.Event) {
				t.Fatalf("%s reads as\n%+v, %v, and its first version as\n%+v", packed.Data, got.Event, err, first.Event)
			}
			if len(packed.Data)+100 < len(whole) {
				shorter++
			}
		}
	}
	if shorter < 50 {
		t.Errorf("only %d events were 100 bytes shorter without what repeats", shorter)
	}
}

// withoutUnsupported returns an event without the values of optional fields that
// the codec leaves to encoding/json: times, pointers, maps and media.
func withoutUnsupported(e Event) Event {
	v := reflect.New(reflect.TypeOf(e)).Elem()
	v.Set(reflect.ValueOf(e))
	for _, field := range v.Fields() {
		switch value := field.Interface().(type) {
		case time.Time:
			field.SetZero()
		case domain.Contents:
			field.Set(reflect.ValueOf(domain.Contents(nil)))
			if text := value.Text(); text != "" {
				field.Set(reflect.ValueOf(domain.Contents{domain.Text(text)}))
			}
		}
		if kind := field.Kind(); kind == reflect.Pointer || kind == reflect.Map {
			field.SetZero()
		}
	}
	return v.Interface().(Event)
}

func TestCodecDecodesItsOwnOutput(t *testing.T) {
	t.Parallel()
	for _, e := range sampleEvents() {
		e = withoutUnsupported(e)
		data, encoded := encodeWithCodec(e)
		supported := codecSupports(reflect.TypeOf(e))
		if encoded != supported {
			t.Errorf("codec supports %s: %v, and it encoded the sample: %v", e.Kind(), supported, encoded)
		}
		if got := decodeWithCodec(e.Kind(), data, nil); supported && !reflect.DeepEqual(got, e) {
			t.Errorf("codec decodes %s to\n%+v, want\n%+v", data, got, e)
		}
	}
}

// mutated returns a copy of data with one or two random changes.
func (r randomFiller) mutated(data []byte) []byte {
	out := bytes.Clone(data)
	bits := []string{`"`, `\`, `{`, `}`, `[`, `]`, `,`, `:`, ` `, `null`, `\u0041`, `\ud800`, "\xff", "\x01", `0`, `-`, `,"text":"x"`, `,"Tool":"x"`, `,"n":1`, `true`}
	for range 1 + r.IntN(2) {
		at := r.IntN(len(out) + 1)
		switch r.IntN(4) {
		case 0:
			out = append(out[:at:at], append([]byte(bits[r.IntN(len(bits))]), out[at:]...)...)
		case 1:
			out = out[:at]
		case 2:
			to := min(len(out), at+r.IntN(20))
			out = append(out[:at:at], out[to:]...)
		default:
			if at < len(out) {
				out[at] = byte(r.Uint32())
			}
		}
	}
	return out
}

func TestDecodeReportsDamageExactlyWhereEncodingJSONDoes(t *testing.T) {
	t.Parallel()
	r := randomFiller{rand.New(rand.NewPCG(3, 3))}
	d := &decoder{interned: &internTable{}}
	damagedOnes := 0
	for range Rounds(40, 150) {
		for _, e := range sampleEvents() {
			data, err := marshalJSON(packedForm(e))
			if err != nil {
				t.Fatal(err)
			}
			data = r.mutated(data)
			want, failed := decodeWithStdlib(e.Kind(), data)
			got, err := d.lent(Entry{Record: Record{Kind: e.Kind(), Version: kinds[e.Kind()].version, Data: data}})
			if (err == nil) != (failed == nil) {
				t.Fatalf("%s %s decodes with %v, and by encoding/json with %v", e.Kind(), data, err, failed)
			}
			if failed != nil {
				damagedOnes++
				continue
			}
			for i := range data {
				data[i] = '#' // decoded values share no memory with the entry
			}
			if !reflect.DeepEqual(got.Event, want) {
				t.Fatalf("%s decodes as\n%+v\nand by encoding/json as\n%+v", e.Kind(), got.Event, want)
			}
		}
	}
	if damagedOnes < 100 {
		t.Errorf("only %d mutations were damage", damagedOnes)
	}
}

func TestMetadataDecodeAsEncodingJSON(t *testing.T) {
	t.Parallel()
	r := randomFiller{rand.New(rand.NewPCG(4, 4))}
	good := metadata{draftOf(nil).Correlation, draftOf(nil).Causation}
	for _, m := range []metadata{good, {Correlation: good.Correlation}, {Causation: good.Causation}, {}} {
		slow, err := marshalJSON(m)
		if err != nil || !bytes.Equal(new(encodeBuffer).metadata(m), slow) {
			t.Errorf("metadata are written %s, and by encoding/json %s, %v", new(encodeBuffer).metadata(m), slow, err)
		}
		for i := range Rounds(150, 500) {
			data := slow
			if i > 0 {
				data = r.mutated(slow)
			}
			if len(data) == 0 {
				continue
			}
			var want metadata
			failed := json.Unmarshal(data, &want)
			got, err := (&decoder{}).metadata(data)
			if (err == nil) != (failed == nil) || failed == nil && got != want {
				t.Fatalf("%s reads as %+v, %v, and by encoding/json as %+v, %v", data, got, err, want, failed)
			}
		}
	}
}

func FuzzCodec(f *testing.F) {
	for i, e := range sampleEvents() {
		data, err := marshalJSON(packedForm(e))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, data)
	}
	all := sampleEvents()
	f.Fuzz(func(t *testing.T, i int, data []byte) {
		kind := all[uint(i)%uint(len(all))].Kind()
		got := decodeWithCodec(kind, data, nil)
		if got == nil {
			return
		}
		if want, err := decodeWithStdlib(kind, data); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads as\n%+v\nand by encoding/json as\n%+v, %v", data, got, want, err)
		}
	})
}

func FuzzCompactLen(f *testing.F) {
	for _, raw := range fillRaws {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := compactLen(data)
		if n > len(data) {
			t.Fatalf("compactLen(%q) = %d", data, n)
		}
		if n > 0 && !json.Valid(data[:n]) {
			t.Errorf("compactLen(%q) = %d, and that is not JSON", data, n)
		}
		var b bytes.Buffer
		if json.Compact(&b, data) == nil && bytes.Equal(b.Bytes(), data) && bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < maxNesting && n != len(data) {
			t.Errorf("compactLen(%q) = %d, and it is JSON without a space", data, n)
		}
	})
}

func FuzzString(f *testing.F) {
	for _, s := range fillTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := marshalJSON(s)
		if got := appendString(nil, s); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q is written %s, and by encoding/json %s, %v", s, got, want, err)
		}
		var back string
		if err := json.Unmarshal(want, &back); err != nil {
			t.Fatal(err)
		}
		read := jsonCodec{buf: want, reading: true}
		if got := read.readString(); !read.complete() || got != back {
			t.Errorf("%s reads as %q, %v, and by encoding/json as %q", want, got, read.complete(), back)
		}
	})
}

func FuzzULID(f *testing.F) {
	f.Add("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", []byte("0123456789abcdef"))
	f.Add("00000000000000000000000000", make([]byte, 16))
	f.Add("01ARZ3NDEKTSV4RRFFQ69G5FAV", bytes.Repeat([]byte{0xff}, 16))
	f.Fuzz(func(t *testing.T, text string, b []byte) {
		if len(text) == ulidText {
			got, ok := parseULID([]byte(text))
			var want domain.EventID
			err := want.UnmarshalText([]byte("evt_" + text))
			if ok && (err != nil || got != want.Bytes()) || !ok && err == nil && text == strings.ToUpper(text) {
				t.Errorf("%s reads as %x, %v, and in domain as %x, %v", text, got, ok, want.Bytes(), err)
			}
		}
		if len(b) < 16 {
			return
		}
		id := eventID([16]byte(b))
		if got := "evt_" + string(appendULID(nil, id.Bytes())); !id.IsZero() && got != id.String() {
			t.Errorf("%x is written %s, and in domain %s", b[:16], got, id)
		}
	})
}

// encodeWithCodec encodes an event with the codec, and reports whether the codec
// supports it.
func encodeWithCodec(e Event) (json.RawMessage, bool) {
	c := jsonCodec{}
	ok := c.write(e)
	return c.buf, ok
}
