package media_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"

	"github.com/settlement-ledger/ledger/builtins/media"
)

// An image that is too wide is scaled, and a text has no media type.
func Example() {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 4000, 20))); err != nil {
		fmt.Println(err)
		return
	}
	mime := media.TypeOf(file.Bytes())
	shown, err := media.Load(&file, mime, "wide.png")
	if err != nil {
		fmt.Println(err)
		return
	}
	config, _, err := image.DecodeConfig(bytes.NewReader(shown.Data))
	fmt.Println(mime, config.Width, config.Height, err)
	fmt.Printf("%q\n", media.TypeOf([]byte("plain text")))
	// Output:
	// image/png 2000 10 <nil>
	// ""
}
