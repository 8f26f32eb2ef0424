import { StatusBar } from "expo-status-bar";
import { useReducer, useState } from "react";
import { FlatList, Pressable, StyleSheet, Text, TextInput, View } from "react-native";
import { tasksAfter } from "./tasks";

export function App() {
  const [tasks, dispatch] = useReducer(tasksAfter, []);
  const [text, setText] = useState("");

  function add() {
    dispatch({ type: "add", text });
    setText("");
  }

  return (
    <View style={styles.screen}>
      <Text style={styles.title}>__PROJECT_NAME__</Text>
      <TextInput
        accessibilityLabel="New task"
        style={styles.input}
        value={text}
        onChangeText={setText}
        onSubmitEditing={add}
        placeholder="What is to be done?"
      />
      <FlatList
        data={tasks}
        keyExtractor={(task) => String(task.id)}
        renderItem={({ item }) => (
          <Pressable accessibilityRole="button" onPress={() => dispatch({ type: "toggle", id: item.id })}>
            <Text style={[styles.task, item.done && styles.done]}>{item.text}</Text>
          </Pressable>
        )}
      />
      <Pressable accessibilityRole="button" onPress={() => dispatch({ type: "clear" })}>
        <Text>Remove what is done</Text>
      </Pressable>
      <StatusBar style="auto" />
    </View>
  );
}

const styles = StyleSheet.create({
  screen: { flex: 1, padding: 24, paddingTop: 64, gap: 16, backgroundColor: "#fff" },
  title: { fontSize: 24, fontWeight: "600" },
  input: { borderWidth: 1, borderColor: "#888", borderRadius: 8, padding: 12 },
  task: { fontSize: 18, paddingVertical: 8 },
  done: { textDecorationLine: "line-through", opacity: 0.5 },
});
