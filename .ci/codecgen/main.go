// Codecgen generates events/codec_events.go: the methods of the event types and
// the functions with which the codec encodes and decodes their fields.
//
// It reads the table of kinds and the event structs of package events, and the
// structs of package domain that their fields use. It reads them as syntax, so
// it runs while a new struct does not implement Event yet. Package events runs
// it:
//
//	go generate ./events
//
// With -check it writes no file, and fails if the file in the folder differs
// from the one that it would write.
//
// # Kinds
//
// Each line of the table, "Name": of[Type](upcasts...), gives the struct Type
// the methods of an Event. In a line "Name": packed[Type, Packed](upcasts...) the
// struct Packed is encoded in place of Type: the function packType returns it, and its
// method unpacked returns the event. A struct that has JSON keys in its tags must
// be in the table or in a field of a struct that is.
//
// # Fields
//
// Every field has a JSON key in its tag, with omitempty or omitzero for an
// optional one. The tag codec:"intern" on a string makes a decoder intern its
// values; use it for names that repeat in a log. The codec encodes strings,
// booleans, integers, json.RawMessage, structs of these, slices of strings and
// of structs, and the types of package domain that have a text form.
//
// It leaves time.Time, pointers and maps to encoding/json. An event with a value
// in such an optional field, and each event of a kind with such a required
// field, is encoded and decoded by encoding/json, which is slower. Any other
// type is an error that names the field.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// output is the name of the generated file.
const output = "codec_events.go"

func main() {
	check := flag.Bool("check", false, "write no file; fail if the file differs")
	events := flag.String("events", ".", "folder of package events")
	domain := flag.String("domain", "../domain", "folder of package domain")
	flag.Parse()
	if err := run(*events, *domain, *check); err != nil {
		fmt.Fprintln(os.Stderr, "codecgen:", err)
		os.Exit(1)
	}
}

// run generates the file of package events and writes it into the folder of the
// package. With check it compares instead.
func run(events, domain string, check bool) error {
	want, err := generate(events, domain)
	if err != nil {
		return err
	}
	path := filepath.Join(events, output)
	if !check {
		return os.WriteFile(path, want, 0o644)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s is not up to date: run go generate ./events and commit the file", path)
	}
	return nil
}

// generate returns the content of the generated file.
func generate(events, domain string) ([]byte, error) {
	e, err := parsePackage(events)
	if err != nil {
		return nil, err
	}
	d, err := parsePackage(domain)
	if err != nil {
		return nil, err
	}
	m, err := load(e, d)
	if err != nil {
		return nil, err
	}
	return m.source()
}
