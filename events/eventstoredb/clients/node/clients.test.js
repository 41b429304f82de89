// The official Node clients against the protocol server, which answers them as a
// database does. The tests are in a file for each area, and run one after another.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { client, uncalled } from "./kit.js";
import "./appends.js";
import "./reads.js";
import "./subscriptions.js";
import "./groups.js";
import "./metadata.js";
import "./refusals.js";
import "./connections.js";

after(() => client.dispose());

test("every kind of call that the client has is tested", () => {
	assert.deepEqual(uncalled(), []);
});
