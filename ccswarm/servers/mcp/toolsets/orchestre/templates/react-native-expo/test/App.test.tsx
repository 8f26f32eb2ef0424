import { Text, TextInput } from "react-native";
import { act, create, type ReactTestRenderer } from "react-test-renderer";
import { App } from "../src/App";

function texts(shown: ReactTestRenderer) {
  return shown.root.findAllByType(Text).map((text) => text.props.children);
}

test("a task that is typed in is shown", () => {
  let shown!: ReactTestRenderer;
  act(() => {
    shown = create(<App />);
  });
  expect(texts(shown)).toContain("__PROJECT_NAME__");
  act(() => shown.root.findByType(TextInput).props.onChangeText("buy milk"));
  act(() => shown.root.findByType(TextInput).props.onSubmitEditing());
  expect(texts(shown)).toContain("buy milk");
  act(() => shown.unmount());
});
