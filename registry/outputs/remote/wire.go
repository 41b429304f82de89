package remote

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// The headers and texts of the protocol, which the package doc describes.
const (
	// protocol is the version of the protocol.
	protocol = "1"

	// protocolHeader has the version, in each response of a node.
	protocolHeader = "Ledger-Outputs"
	// retainedHeader has the metadata of a blob.
	retainedHeader = "Ledger-Retained"
	// mimeHeader has the media type of an upload, percent-encoded.
	mimeHeader = "Ledger-Media-Type"
	// errorHeader has the encoded error of a response.
	errorHeader = "Ledger-Error"
	// digestHeader has the digest of the bytes in a body. In an upload it is a trailer.
	digestHeader = "Content-Digest"

	// pageSize is the greatest length in bytes of a range whose response has a digest.
	// It is also the size of the reader's buffer.
	pageSize = 1 << 20

	// The last line of a list is listEnd, or listError and an encoded error. A list
	// without such a line was cut.
	listEnd   = "end"
	listError = "error "
)

// pathOf returns the path of a blob below the address of a node.
func pathOf(ref domain.Ref) string {
	return "/v1/outputs/" + ref.Settlement().String() + "/" + ref.Channel().String()
}

// encodeRetained returns the value of the header Ledger-Retained for a blob.
func encodeRetained(r domain.Retained) string {
	return url.Values{
		"ref": {r.Ref.String()}, "bytes": {strconv.FormatInt(r.Bytes, 10)}, "lines": {strconv.FormatInt(r.Lines, 10)},
		"mime": {r.MIME}, "sha256": {r.SHA256},
	}.Encode()
}

// decodeRetained is the inverse of encodeRetained. It returns an error for a missing
// field, and for sizes and digests that no blob has.
func decodeRetained(text string) (domain.Retained, error) {
	form, err := url.ParseQuery(text)
	if err != nil {
		return domain.Retained{}, fmt.Errorf("parse %q: %w", truncate(text), err)
	}
	r := domain.Retained{MIME: form.Get("mime"), SHA256: form.Get("sha256")}
	if r.Ref, err = domain.ParseRef(form.Get("ref")); err != nil {
		return domain.Retained{}, err
	}
	if r.Bytes, err = strconv.ParseInt(form.Get("bytes"), 10, 64); err == nil {
		r.Lines, err = strconv.ParseInt(form.Get("lines"), 10, 64)
	}
	if err != nil {
		return domain.Retained{}, fmt.Errorf("parse %q: %w", truncate(text), err)
	}
	sum, err := hex.DecodeString(r.SHA256)
	if err != nil || len(sum) != sha256.Size || r.SHA256 != strings.ToLower(r.SHA256) || r.Bytes < 0 || r.Lines < 1 || r.Lines-1 > r.Bytes {
		return domain.Retained{}, fmt.Errorf("parse %q: no output has these sizes or this digest", truncate(text))
	}
	return r, nil
}

// encodeDigest returns a SHA-256 in the format of RFC 9530.
func encodeDigest(sum []byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":"
}

// hasDigest reports whether a Content-Digest has sum as its SHA-256. The header may
// have digests of other algorithms.
func hasDigest(header string, sum []byte) bool {
	for field := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(field) == encodeDigest(sum) {
			return true
		}
	}
	return false
}
