package domain

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A Content is one part of a tool result: [Text] or [Media].
type Content interface{ content() }

// Text is a part that the model reads as text. Adjacent texts are read without
// a separator.
type Text string

// Media is an image or another file. The model receives it as a file and never
// as text.
type Media struct {
	MIME string
	// Name is the file name. It may be empty.
	Name string
	Data []byte
}

func (Text) content()  {}
func (Media) content() {}

// URI returns the media as a data URI in base64.
func (m Media) URI() string {
	return "data:" + m.MIME + ";base64," + base64.StdEncoding.EncodeToString(m.Data)
}

// Contents are parts in order. Their JSON is an array of
// {"type":"text","text":…} and
// {"type":"file","uri":"data:…","mime":…,"name":…}.
type Contents []Content

// Text returns the text parts, joined without a separator.
func (cs Contents) Text() string {
	var b strings.Builder
	for _, c := range cs {
		if t, ok := c.(Text); ok {
			b.WriteString(string(t))
		}
	}
	return b.String()
}

// Media returns the media parts, in order.
func (cs Contents) Media() []Media {
	var media []Media
	for _, c := range cs {
		if m, ok := c.(Media); ok {
			media = append(media, m)
		}
	}
	return media
}

// validUTF8 returns a copy of the parts with U+FFFD in place of each invalid byte. This
// equals what UnmarshalJSON reads from their JSON.
func (cs Contents) validUTF8() Contents {
	kept := slices.Clone(cs)
	for i, c := range kept {
		switch c := c.(type) {
		case Text:
			kept[i] = Text(validUTF8(string(c)))
		case Media:
			kept[i] = Media{MIME: validUTF8(c.MIME), Name: validUTF8(c.Name), Data: c.Data}
		}
	}
	return kept
}

// A contentWire is the JSON of one part.
type contentWire struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	URI  string `json:"uri,omitempty"`
	MIME string `json:"mime,omitempty"`
	Name string `json:"name,omitempty"`
}

// MarshalJSON writes the JSON that Contents documents. It returns an
// ErrBadWord for a part that is neither Text nor Media.
func (cs Contents) MarshalJSON() ([]byte, error) {
	wire := make([]contentWire, len(cs))
	for i, c := range cs {
		switch c := c.(type) {
		case Text:
			wire[i] = contentWire{Type: "text", Text: string(c)}
		case Media:
			wire[i] = contentWire{Type: "file", URI: c.URI(), MIME: c.MIME, Name: c.Name}
		default:
			return nil, fmt.Errorf("encode content %d: %w: %T", i, ErrBadWord, c)
		}
	}
	return schemaCodec[[]contentWire]{}.Encode(wire)
}

// UnmarshalJSON reads the JSON that Contents documents. It leaves cs unchanged
// when it returns an error.
func (cs *Contents) UnmarshalJSON(data []byte) error {
	var wire []contentWire
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	parts := make(Contents, len(wire))
	for i, w := range wire {
		part, err := w.content()
		if err != nil {
			return fmt.Errorf("decode content %d: %w", i, err)
		}
		parts[i] = part
	}
	*cs = parts
	return nil
}

// content returns the part that w describes. It returns an ErrBadWord for an unknown
// type, or for a URI that is not a base64 data URI of the MIME type in w.
func (w contentWire) content() (Content, error) {
	switch w.Type {
	case "text":
		return Text(w.Text), nil
	case "file":
		encoded, ok := strings.CutPrefix(w.URI, "data:"+w.MIME+";base64,")
		if !ok {
			return nil, fmt.Errorf("%w: uri is not base64 data of %s", ErrBadWord, w.MIME)
		}
		data, err := base64.StdEncoding.DecodeString(encoded)
		return Media{MIME: w.MIME, Name: w.Name, Data: data}, err
	}
	return nil, fmt.Errorf("%w: type %q is not text or file", ErrBadWord, w.Type)
}
