package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/builtins/media"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/domain"
)

// maxAttached is the maximum size in base64 of all attachments of a prompt, in bytes.
const maxAttached = 5 << 20

// loadAttachments reads the images and PDF files of --attach. It returns a usage fault for a
// file that is neither, that cannot be decoded, or that is too large.
func loadAttachments(paths []string) (all []domain.Media, err error) {
	total := 0
	for _, path := range paths {
		m, err := loadAttachment(path)
		if failed, ok := errors.AsType[*domain.Failure](err); ok {
			return nil, fault.Usage("--attach: %s", failed.Error())
		}
		if err != nil {
			return nil, fault.WithHint(fmt.Errorf("--attach: %w", err), "name an image or a PDF file that can be read")
		}
		if total += base64.StdEncoding.EncodedLen(len(m.Data)); total > maxAttached {
			return nil, fault.Usage("--attach: the files have over %d bytes of base64: attach fewer or smaller ones", maxAttached)
		}
		all = append(all, m)
	}
	return all, nil
}

// loadAttachment reads one image or PDF file. A large image is scaled down.
func loadAttachment(path string) (domain.Media, error) {
	info, err := os.Stat(path)
	if err != nil {
		return domain.Media{}, err
	}
	if !info.Mode().IsRegular() {
		return domain.Media{}, domain.Fail("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return domain.Media{}, err
	}
	defer f.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return domain.Media{}, err
	}
	mime := media.TypeOf(head[:n])
	if mime == "" {
		return domain.Media{}, domain.Fail("%s is neither a PNG, JPEG, GIF or WebP image nor a PDF file: name a text file in the prompt, so that the model reads it", path)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return domain.Media{}, err
	}
	loaded, err := media.Load(f, mime, path)
	if err != nil {
		return domain.Media{}, err
	}
	return domain.Media{MIME: loaded.MIME, Name: filepath.Base(path), Data: loaded.Data}, nil
}
